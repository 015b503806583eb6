"""Reads logs: files, archives, streams, rotation, the index by rank and second, step logs."""

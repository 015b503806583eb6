"""Reads logs: plain and compressed files, archives, rotated parts, indexes by time, step logs."""

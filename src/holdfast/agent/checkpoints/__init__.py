"""Keeps a copy of the newest checkpoint in memory, and puts it back when the disk's is gone or damaged."""

"""Decides what belongs to a checkpoint, whether a copy of it fits into memory, and whether the disk's is still good."""

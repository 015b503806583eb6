"""Finds hangs in samples of ranks, and the ranks that others wait for. Pure."""

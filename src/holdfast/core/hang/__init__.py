"""Finds hangs in samples of ranks, and who is waited for. Pure."""

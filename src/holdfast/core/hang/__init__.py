"""Detects hangs from samples of ranks, and finds the ranks that others wait for. Pure."""

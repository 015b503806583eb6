"""Reads the world on a node: processes, log files, the kernel log."""

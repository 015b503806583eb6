"""Reads one machine: processes, log files, the kernel log."""

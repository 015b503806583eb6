"""Reads processes of a training: /proc, stacks, flight records, and queries to ranks."""

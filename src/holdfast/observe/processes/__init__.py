"""Reads processes: /proc, stacks, flight records, queries to ranks."""

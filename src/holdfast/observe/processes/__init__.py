"""Looks at processes: /proc, stacks, flight records, questions to ranks."""

"""Defines data types of flight records, their digests, and stacks. No behaviour."""

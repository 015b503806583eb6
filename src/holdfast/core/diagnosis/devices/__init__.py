"""Judges faults of devices by their codes, events and words. Pure."""

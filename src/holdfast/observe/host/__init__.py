"""Looks at a machine: kernel log, devices, counters, space."""

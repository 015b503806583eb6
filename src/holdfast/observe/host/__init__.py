"""Reads the state of a node: kernel log, devices, counters, cgroups, disk space."""

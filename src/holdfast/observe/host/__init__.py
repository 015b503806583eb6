"""Reads a machine: kernel log, devices, counters, disk space."""

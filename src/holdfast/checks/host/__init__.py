"""Checks the host of a node: clock, kernel, processes, CPUs, memory and system services."""

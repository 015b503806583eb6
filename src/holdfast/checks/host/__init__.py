"""Checks of the machine: clock, kernel, processes, resources, services."""

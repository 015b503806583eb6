"""Reads Python tracebacks. Pure."""

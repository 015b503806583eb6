"""Parses Python tracebacks in logs. Pure."""

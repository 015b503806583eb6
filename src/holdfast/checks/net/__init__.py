"""Checks network interfaces, host names and ports."""

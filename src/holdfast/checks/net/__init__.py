"""Checks of network interfaces and names."""

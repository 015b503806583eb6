"""Decides what is exported for Prometheus, and reads what Prometheus knows. Pure."""

"""Computes the metrics that Prometheus scrapes, and interprets data from Prometheus. Pure."""

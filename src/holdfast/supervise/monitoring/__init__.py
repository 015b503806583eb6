"""Exports the metrics of what is supervised, and asks Prometheus about its incidents."""

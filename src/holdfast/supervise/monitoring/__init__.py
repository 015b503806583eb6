"""Exports the metrics of a supervised job and queries Prometheus about its incidents."""

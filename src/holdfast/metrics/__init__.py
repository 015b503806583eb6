"""Exports metrics to Prometheus, queries Prometheus, and sends alerts to Alertmanager."""

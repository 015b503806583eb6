"""Serves metrics to Prometheus, asks Prometheus, and sends alerts to Alertmanager."""

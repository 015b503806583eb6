"""Defines data types of metrics and alerts. No behaviour."""

"""Data types of metrics and alerts. No behaviour."""

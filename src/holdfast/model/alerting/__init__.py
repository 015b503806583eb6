"""Data types of alerts and alert rules."""

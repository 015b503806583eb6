"""Defines all settings, reads them from their sources, and parses durations and times."""

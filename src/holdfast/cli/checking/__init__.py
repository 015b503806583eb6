"""Runs what `holdfast check` does besides reporting: checks on nodes, stored results, pair measurements."""

"""Judges the results of checks: of one node, between nodes, against the baseline, and for the run. Pure."""

"""Formats comparisons of runs: report, document, curves."""

"""Formats comparisons of runs: report, JSON document, charts."""

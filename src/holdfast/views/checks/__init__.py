"""Formats the results of checks and benchmarks as reports, charts, HTML pages and PNG images."""

"""Formats step times as reports, charts, HTML pages and PNG images."""

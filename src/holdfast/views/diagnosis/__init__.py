"""Formats a diagnosis as a JSON document and as a text report."""

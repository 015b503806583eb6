"""Formats a diagnosis as a document and as a report."""

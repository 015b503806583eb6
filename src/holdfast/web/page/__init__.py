"""Serves the page: its files by their hashes, and an HTML document for each of its routes."""

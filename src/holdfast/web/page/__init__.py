"""Serves the web page: its files, and an HTML document for each of its routes."""

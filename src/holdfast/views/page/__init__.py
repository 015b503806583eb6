"""Builds the page: its script and style, the HTML shell of the server, and the saved file."""

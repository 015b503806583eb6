"""Builds the web page: its script and style sheet, the HTML document of the server, and the self-contained file of a
saved page.
"""

"""Builds the page: the script and style of it, the shell that a server sends, and the file that is saved."""

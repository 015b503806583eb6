"""Keeps the server's database: an index made of journals, which can be made anew at any time."""

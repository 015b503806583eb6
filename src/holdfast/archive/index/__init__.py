"""Maintains the server's database: an index of journals that can be rebuilt at any time."""

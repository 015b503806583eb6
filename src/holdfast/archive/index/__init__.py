"""Maintains the server's database: an index of journals that can be rebuilt from them at any time."""

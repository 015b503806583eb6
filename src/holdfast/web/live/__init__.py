"""Sends what changes to viewers as server-sent events, each of them bounded."""

"""Judges collectives between the ranks of one node, and of more than one. Pure."""

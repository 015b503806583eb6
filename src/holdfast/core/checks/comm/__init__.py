"""Judges collectives between the ranks of one node, and over several nodes. Pure."""

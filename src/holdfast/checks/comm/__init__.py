"""Checks of communication: on one machine, between pairs of nodes, over sizes."""

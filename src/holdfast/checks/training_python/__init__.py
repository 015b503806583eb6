"""Runs code in the Python of the training: environment queries, collectives, load, pairs of nodes."""

"""Runs measurements and queries in the Python of the training: environment, collectives, burn-in, pairs of
nodes.
"""

"""Runs measurements and queries in the Python of the training: environment, collectives, load, pairs of
nodes.
"""

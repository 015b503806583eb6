"""Simulates a cluster (clock, random numbers, nodes, training), on which the real decision rules and the real
controller run.
"""

"""Implements the connection between agents and a job's controller: entries of each agent upwards, orders
downwards.

Transports bytes and does not interpret them.
"""

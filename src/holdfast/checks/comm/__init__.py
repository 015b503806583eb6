"""Checks communication between ranks: on one node, between pairs of nodes, and over message sizes."""

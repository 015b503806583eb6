"""Implements the parts of `holdfast check`: runs checks on nodes, stores their results, measures pairs of nodes."""

"""Decides about the workers of a job on many nodes: placement, meeting, spares, standbys. Pure."""

"""Decides about the workers of a job on many nodes: placement, rendezvous, spares, standbys. Pure."""

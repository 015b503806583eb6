"""Finds the ranks that block the others, from each rank's flight record of collectives. Pure."""

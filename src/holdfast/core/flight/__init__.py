"""Finds who keeps the others waiting, from what each rank's flight recorder tells."""

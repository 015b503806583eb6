"""Reads flight records of collectives. Pure."""

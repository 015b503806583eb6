"""Parses flight records of collectives: names, pickles, JSON. Pure."""

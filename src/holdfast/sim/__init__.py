"""Simulates clock, random numbers and nodes, on which the real core and controller run."""

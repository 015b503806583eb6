"""Simulates clock, random numbers and nodes under the real core and loop."""

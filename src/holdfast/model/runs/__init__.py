"""Defines data types of the comparison of runs, and of where the ranks of a run are placed."""

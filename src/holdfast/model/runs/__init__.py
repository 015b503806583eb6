"""Data types of runs beside each other, and of where the ranks of a run are placed."""

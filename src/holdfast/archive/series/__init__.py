"""Reads the data of charts: step times of a job, and one value per rank over time."""

"""Reads the data of charts: step times of a job, and one value for each rank over time."""

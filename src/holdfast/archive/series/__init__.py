"""Reads what charts show: the step times of a job, and one value of each rank over time."""

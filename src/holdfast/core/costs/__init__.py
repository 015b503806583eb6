"""Computes what the time of a job was spent on, and what other settings would have cost. Pure."""

"""Decides what people are told of a job, whom, and when. Pure."""

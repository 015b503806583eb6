"""Keeps what is known of a fleet's nodes over all jobs, in one SQLite file."""

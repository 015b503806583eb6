"""Stores a job's journal: the append-only record of its events and the controller's decisions."""

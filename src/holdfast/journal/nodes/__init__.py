"""Keeps the history of a fleet's nodes across jobs in one SQLite file: the node book."""

"""Defines data types of multi-node jobs and of the node book. No behaviour."""

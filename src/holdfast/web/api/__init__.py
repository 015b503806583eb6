"""Implements the HTTP API: one table of routes, their parameters and results, and their handlers."""

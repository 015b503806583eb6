"""Runs a bisection: short runs of a command, their judgements, and their record."""

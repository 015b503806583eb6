"""Runs a bisection: short runs of a command, their judgement, and their record."""

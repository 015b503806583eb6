"""Checks of the environment of a run."""

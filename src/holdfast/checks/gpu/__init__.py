"""Checks of GPUs."""

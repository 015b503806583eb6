"""Reads arguments and settings, wires the rooms."""

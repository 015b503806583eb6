"""Reads jobs from their folders and returns them as documents."""

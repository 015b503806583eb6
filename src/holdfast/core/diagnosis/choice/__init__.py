"""Chooses the root cause among candidates, and computes the confidence. Pure."""

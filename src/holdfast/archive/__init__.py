"""Reads jobs as documents: one job from its folder."""

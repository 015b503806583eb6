"""Judges pairs of nodes: plan, evidence, verdict, words. Pure."""

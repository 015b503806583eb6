"""Judges pairwise measurements of nodes: plan of rounds, evidence, verdict, words. Pure."""

"""Costs, advice and comparisons of policies, for people."""

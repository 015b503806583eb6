"""Implements all decisions of Holdfast as pure functions: exits, hangs, verdicts, diagnosis, the recovery ladder,
checks, metrics.
"""

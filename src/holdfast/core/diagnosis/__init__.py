"""Diagnoses a job from the log lines that match error signatures: the root cause, its culprits and an action.

Pure.
"""

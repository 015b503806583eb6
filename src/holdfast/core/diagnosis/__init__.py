"""Diagnoses a job from matches in its logs: which error came first, its culprit, what to do. Pure."""

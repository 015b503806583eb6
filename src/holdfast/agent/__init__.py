"""Implements the agent of one worker: starts the training command, watches its processes, and stops it."""

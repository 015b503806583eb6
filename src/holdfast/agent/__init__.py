"""The agent of one worker: starts the command, watches it, stops it."""

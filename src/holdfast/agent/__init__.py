"""One per worker: starts the command, watches it, stops it."""

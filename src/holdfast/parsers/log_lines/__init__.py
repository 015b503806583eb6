"""Reads what surrounds a message: prefixes, timestamps, wrappers, file names, secrets. Pure."""

"""Parses the surroundings of a log message: prefixes, time stamps, wrappers, file names, secrets. Pure."""

"""Implements the command line: flags, completion, languages, output."""

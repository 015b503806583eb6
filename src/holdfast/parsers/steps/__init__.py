"""Parses step lines: forms, columns, progress bars, times, values, event files. Pure."""

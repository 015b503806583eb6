"""Commands: each parses arguments, calls one function and returns the exit code."""

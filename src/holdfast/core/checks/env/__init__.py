"""Judges the environment of a run: variables, command, script, Python, compiler, ports, checkpoints. Pure."""

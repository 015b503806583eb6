"""Executes requests of users on a node: commands, terminals, stack dumps."""

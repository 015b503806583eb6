"""Evaluates events of machines and pods, and nodes that recovered. Pure."""

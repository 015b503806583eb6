"""Engines of this machine: its single node, or several simulated nodes."""

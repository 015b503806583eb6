"""Implements the engines of this machine: one with a single node, one with several simulated nodes."""

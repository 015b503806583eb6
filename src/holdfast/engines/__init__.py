"""Implements the engines (local, slurm, kubernetes), which provide nodes and carry out the core's orders
about them.
"""

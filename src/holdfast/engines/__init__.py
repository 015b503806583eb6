"""Implements the engines (local, slurm, kubernetes), which provide nodes and carry out the controller's orders about
nodes.
"""

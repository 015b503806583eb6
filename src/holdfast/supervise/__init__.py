"""Implements the supervisors, which run a job to its end on one node, on many nodes, under Slurm or on
Kubernetes.
"""

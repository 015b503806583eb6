"""Judges where the ranks of a job run: groups by role, nodes, switches, NUMA nodes, network devices, GPUs."""

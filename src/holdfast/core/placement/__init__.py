"""Judges where the ranks of a job are placed: process groups by role, nodes, switches, NUMA nodes, network devices,
GPUs. Pure.
"""

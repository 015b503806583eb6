"""Engines execute the core's orders: local, slurm, kubernetes. Each provides nodes and places workers."""

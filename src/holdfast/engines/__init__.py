"""Engines execute the core's orders: local, slurm. Each provides nodes and places workers."""

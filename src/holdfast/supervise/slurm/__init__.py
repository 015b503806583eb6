"""Runs a job under Slurm: submits and follows it from a login node, and supervises it inside an allocation."""

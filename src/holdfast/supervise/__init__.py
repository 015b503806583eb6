"""Supervisors: they run a job to its end on one machine, on many nodes, or under Slurm."""

"""Decides how to react to the states of a job's pods, nodes and owner on Kubernetes. Pure."""

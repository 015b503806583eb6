"""Decides what follows from the states of a job's pods, nodes and owner on Kubernetes. Pure."""

"""Decisions about the pods of a job on Kubernetes."""

"""Parses objects and watch events of the Kubernetes API. Pure."""

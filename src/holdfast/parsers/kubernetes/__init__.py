"""Parsers of objects of the Kubernetes API."""

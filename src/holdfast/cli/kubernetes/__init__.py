"""Implements the commands for Kubernetes."""

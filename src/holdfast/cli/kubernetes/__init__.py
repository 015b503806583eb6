"""Commands for Kubernetes."""

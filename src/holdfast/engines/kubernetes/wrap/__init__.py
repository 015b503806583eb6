"""Wraps users' own manifests of training jobs, so that Holdfast supervises the pods they make."""

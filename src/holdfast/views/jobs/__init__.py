"""Builds the documents of jobs and incidents from their stories. Pure."""

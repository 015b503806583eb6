"""Builds the documents of jobs and incidents that the page and the API show, from journals. Pure."""

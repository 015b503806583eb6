"""Formats costs of jobs, advice on settings, and comparisons of policies, as text, HTML and PNG."""

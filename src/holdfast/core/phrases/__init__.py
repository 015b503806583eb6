"""Finds what pasted log lines and error codes mean: fuzzy search over the phrases of the knowledge base.

Pure.
"""

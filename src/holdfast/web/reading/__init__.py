"""Reads what the server answers with: jobs from their folders and the index, nodes from the node book."""

"""Reads the data that the server returns: jobs from their folders and the index, nodes from the node book."""

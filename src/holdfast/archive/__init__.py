"""Reads jobs from their folders on disk, and returns them as the documents that commands, page and API
show.
"""

"""Streams the journal and files of a running job to a Holdfast server, in its own process beside the
supervisor.
"""

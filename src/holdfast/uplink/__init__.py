"""Streams the record of a running job to a Holdfast server: a process of its own beside the supervisor."""

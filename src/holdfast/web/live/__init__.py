"""Sends changes to viewers as server-sent events, through bounded queues."""

"""Judges the GPUs of a node: presence, memory, links, speed, Xids, use by processes. Pure."""

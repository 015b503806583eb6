"""Judges GPUs: presence, memory, links, speed, Xids, use. Pure."""

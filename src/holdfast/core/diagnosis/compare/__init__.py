"""Compares lines of several ranks and nodes: collectives, progress, network paths, settings. Pure."""

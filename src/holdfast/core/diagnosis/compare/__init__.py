"""Compares the lines of ranks and nodes: collectives, progress, network paths, settings. Pure."""

"""Judges nodes over all jobs: lemons, isolation, lost nodes, entries of the node book. Pure."""

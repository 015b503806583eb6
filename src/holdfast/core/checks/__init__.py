"""Judges what checks measured: for one node, between nodes, against the baseline, and for the run."""

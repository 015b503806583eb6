"""What the answers of checks mean: for one node, between nodes, for what was learned, and for the run."""

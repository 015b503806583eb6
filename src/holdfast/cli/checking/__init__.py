"""What `holdfast check` does besides reporting: runs nodes, stores results, tests pairs."""

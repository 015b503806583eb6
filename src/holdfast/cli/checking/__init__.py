"""What `holdfast check` does besides reporting: asks nodes, notes results, tests pairs."""

"""What runs in the Python of the training: its answers, collectives, load, pairs of nodes."""

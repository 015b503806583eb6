"""Makes the first verdict on a failure from the ends of ranks, and completes it with other evidence. Pure."""

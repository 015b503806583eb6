"""Makes the first verdict on a failure from the ends of ranks, and refines it with other evidence. Pure."""

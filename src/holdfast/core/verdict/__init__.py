"""The first verdict on a failure from the ends of ranks, and how it is concluded with what else is known. Pure."""

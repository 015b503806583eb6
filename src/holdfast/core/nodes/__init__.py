"""Judges nodes over all jobs: lemons, isolation, what is known of each. Pure."""

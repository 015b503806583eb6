"""A clock, dice and nodes that are not real, under the real core and loop."""

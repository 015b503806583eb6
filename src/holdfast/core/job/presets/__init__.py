"""Translates the fault-tolerance settings of other systems into a policy. Pure."""

"""The standby: ranks of the next attempt that wait at a gate."""

"""Implements the standby: processes of the next attempt, started ahead, that wait at a gate."""

"""Decisions: hangs, exits, verdicts, the recovery ladder. Pure."""

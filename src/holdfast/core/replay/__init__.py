"""Decides a job again under other settings, from its own journal. Pure."""

"""Decides a recorded job again with other settings, from its journal. Pure."""

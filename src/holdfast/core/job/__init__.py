"""Decides what happens to a job: the loop, the ladder, recovery, progress, policies of other systems, the story for people. Pure."""

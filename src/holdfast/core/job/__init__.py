"""Decides what happens to a job: the decision function, ladder, recovery, progress, policies of other
systems, the story. Pure.
"""

"""Decides what happens to a job: the decision function, recovery ladder, progress, policies of other systems, the
fault-tolerance log. Pure.
"""

"""Implements the controller of a job: passes events to the decision rules in `core`, and has the resulting
orders carried out, on one machine or many.
"""

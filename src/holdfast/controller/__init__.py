"""Implements the controller of a job: its loop from events over decisions to orders, and what it does for
many nodes.
"""

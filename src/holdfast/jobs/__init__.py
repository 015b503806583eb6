"""Finds and opens jobs from other processes: their folder, their journal, and the connection to a running
controller.
"""

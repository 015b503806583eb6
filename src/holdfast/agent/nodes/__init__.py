"""Implements the agent of a multi-node job: its folder, log, checks, file transfer and link to the
controller.
"""

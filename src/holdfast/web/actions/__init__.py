"""Carries out the actions of users: stop, restart, isolation, commands, shells, corrections.

Each one is audited.
"""

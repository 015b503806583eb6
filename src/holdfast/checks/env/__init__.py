"""Checks the environment that a training runs in: shell, Python, packages, variables, ports and
checkpoints.
"""

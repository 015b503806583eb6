"""Checks nodes for faults before a training starts, after a failure and on demand, and runs benchmarks.

`registry` lists all checks; `runner` runs them in child processes, so that a check that hangs never blocks
its caller.
"""

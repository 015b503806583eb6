"""Implements the commands about one job: status, logs, stacks, reports, commands on its workers."""

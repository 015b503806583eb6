"""Observes one node: reads processes, log files, devices and the kernel log, and searches logs for
signatures.
"""

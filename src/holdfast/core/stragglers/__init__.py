"""Finds ranks that are slower than their peers: from logged times, arrival times at collectives, and samples.

Pure.
"""

"""Computes the metrics that Prometheus scrapes from Holdfast, and interprets series and alerts of a
Prometheus. Pure.
"""

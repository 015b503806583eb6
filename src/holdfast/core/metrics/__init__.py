"""Computes the metrics that Prometheus scrapes from Holdfast, and evaluates series and alerts of a Prometheus server
as evidence. Pure.
"""

"""Watches a running attempt: samples, logs, steps, hangs, stragglers."""

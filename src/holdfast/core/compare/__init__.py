"""Compares runs of one training with each other: values step by step, and settings."""

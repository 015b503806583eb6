"""Estimates how often nodes fail, with its uncertainty, and recommends a checkpoint interval and spares.

Pure.
"""

"""Measures one device with torch, or the CPUs with torch or numpy: a program that runs in the training's own Python.

It imports nothing of Holdfast, and torch and numpy by name. Its syntax is that of Python 3.8.
"""

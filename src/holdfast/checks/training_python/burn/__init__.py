"""Measures one device with torch, or the CPUs with torch or numpy; runs as a program in the training's own
Python.

It imports nothing of Holdfast, and imports torch and numpy by name at run time. Its syntax is that of Python
3.8.
"""

"""Defines the commands of `holdfast`: each parses its arguments, calls one function and returns the exit
code.
"""

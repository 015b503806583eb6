"""Searches logs for signatures, and loads the signatures, codes, phrases, rules and step forms that
Holdfast contains.
"""

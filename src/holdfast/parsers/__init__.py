"""Parses text and bytes into model types. Pure."""

"""Parses text and bytes of other programs into the types of `model`. Pure."""

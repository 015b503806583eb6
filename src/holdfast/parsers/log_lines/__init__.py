"""Reads what stands around a message: heads, stamps, wrappings, names, secrets. Pure."""

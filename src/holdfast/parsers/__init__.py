"""Text and bytes to model. Pure."""

"""Finds the meaning of pasted words and codes: fuzzy search in the phrases of the knowledge base. Pure."""

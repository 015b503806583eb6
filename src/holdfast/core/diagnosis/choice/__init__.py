"""Chooses the root cause among candidates: filters, edges, weighing, and how sure the choice is. Pure."""

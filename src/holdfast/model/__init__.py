"""Data types: events, orders, states, settings. No behaviour."""

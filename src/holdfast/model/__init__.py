"""The words: events, orders, states, settings. No behaviour."""

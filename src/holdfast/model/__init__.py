"""Defines data types without behaviour: events, orders, states, settings, documents."""

"""Decides who may ask for what: tokens, sessions, addresses, origins, rates, and the headers of every answer."""

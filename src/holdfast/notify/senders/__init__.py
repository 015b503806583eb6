"""Senders: one module for each kind of receiver, from a notice to its own form."""

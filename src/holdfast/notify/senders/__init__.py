"""Implements the senders of notifications: one module for each kind of receiver."""

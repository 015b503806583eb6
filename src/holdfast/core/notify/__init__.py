"""Decides which notifications about a job are sent, to which channels, and when. Pure."""

"""Decides which requests are allowed: tokens, sessions, addresses, origins, rate limits, and response
headers.
"""

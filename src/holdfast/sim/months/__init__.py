"""Simulates months of one large job on a virtual fleet with the real controller, to compare recovery policies."""

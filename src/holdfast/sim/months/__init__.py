"""Simulates months of one large job on a virtual fleet, under the real controller, for policies side by side."""

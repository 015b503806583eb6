"""Finds who is slower than its peers, so that they wait: from what ranks log, from when they arrive, from how they look."""

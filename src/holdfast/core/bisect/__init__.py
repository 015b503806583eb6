"""Finds the commit, node or setting that makes a run bad, from judged runs."""

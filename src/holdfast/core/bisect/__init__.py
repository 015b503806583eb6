"""Finds the commit, node or setting that makes a run fail, by running the job with some of them."""

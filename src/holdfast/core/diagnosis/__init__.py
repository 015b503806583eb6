"""From what was seen in a job's logs to one verdict: which error came first, whose it was, what to do. Pure."""

"""The agent of a job on many nodes: its folder, log, checks, shipping and line to the controller."""

"""Decides which events of hosts and pods are causes, and which are over (recovered nodes, waits that ended). Pure."""

"""Words of jobs on many nodes and of the node book. No behaviour."""

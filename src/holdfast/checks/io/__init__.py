"""Checks folders, mounts, disks, shared memory and process limits."""

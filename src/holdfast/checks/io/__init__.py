"""Checks of folders, limits and disks."""

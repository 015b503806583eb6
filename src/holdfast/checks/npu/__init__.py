"""Checks of Ascend NPUs."""

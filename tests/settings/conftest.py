"""The clean place and the commands of the command line's tests."""

from cli.conftest import holdfast, nodes, place, state

__all__ = ["holdfast", "nodes", "place", "state"]

"""Starts a server from its settings, for the commands of `holdfast`."""

from collections.abc import Callable

from holdfast.web.reading.state_data import StateData
from holdfast.web.serve import CannotServe, serve
from holdfast.web.settings import Limits, ServerSettings

__all__ = ["CannotServe", "Limits", "ServerSettings", "run"]


def run(settings: ServerSettings, tell: Callable[[str], None]) -> None:
    """Runs a server until a signal ends it. `tell`: receives messages for the user. Raises CannotServe."""
    serve(settings, lambda: StateData(settings), tell)

"""Starts a server from its settings, for the commands."""

from collections.abc import Callable

from holdfast.web.reading.state_data import StateData
from holdfast.web.serve import CannotServe, serve
from holdfast.web.settings import Limits, ServerSettings

__all__ = ["CannotServe", "Limits", "ServerSettings", "run"]


def run(settings: ServerSettings, tell: Callable[[str], None]) -> None:
    """Runs a server until a signal ends it. Raises CannotServe."""
    serve(settings, lambda: StateData(settings), tell)

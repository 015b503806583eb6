"""Starts a server from its settings: what the commands call."""

from collections.abc import Callable

from holdfast.web.reading.state_data import StateData
from holdfast.web.serve import CannotServe, serve
from holdfast.web.settings import Limits, ServerSettings

__all__ = ["CannotServe", "Limits", "ServerSettings", "run"]


def run(settings: ServerSettings, tell: Callable[[str], None]) -> None:
    """Until a signal ends it. raises: CannotServe"""
    serve(settings, lambda: StateData(settings), tell)

"""Starts a server from its settings: what the commands call."""

from collections.abc import Callable

from holdfast.web.serve import CannotServe, serve
from holdfast.web.settings import Limits, ServerSettings
from holdfast.web.state_data import StateData

__all__ = ["CannotServe", "Limits", "ServerSettings", "run"]


def run(settings: ServerSettings, tell: Callable[[str], None]) -> None:
    """Until a signal ends it. raises: CannotServe"""
    serve(settings, StateData(settings), tell)

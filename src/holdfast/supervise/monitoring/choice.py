"""Starts the export of metrics of a controller if the settings enable it; `agent_choice.py` does for an agent.

Modules are imported by name, to save memory otherwise.
"""

import importlib
from collections.abc import Callable
from typing import Protocol

from holdfast.core.job.decision import Decision
from holdfast.model.events import AnyEvent, FindingNoted
from holdfast.model.settings import RunSettings
from holdfast.observe.clock import JobClock


class Metrics(Protocol):
    """Interface of the metrics export of one process.

    `hear`: receives every decision, including those of a resumed job. `turn`: called in each turn of the
    loop. `channels`: returns descriptors that wake the loop.
    """

    def hear(self, event: AnyEvent, decision: Decision) -> None: ...

    def channels(self) -> list[int]: ...

    def turn(self) -> None: ...

    def close(self) -> None: ...


class NoMetrics:
    """Metrics export that does nothing, for settings that disable it."""

    def hear(self, event: AnyEvent, decision: Decision) -> None:
        """Does nothing, because no metrics are exported."""

    def channels(self) -> list[int]:
        return []

    def turn(self) -> None:
        """Does nothing, because no metrics are exported."""

    def close(self) -> None:
        """Does nothing, because no metrics are exported."""


def is_asked(settings: RunSettings) -> bool:
    return bool(settings.metrics_address or settings.metrics_textfile)


class Several:
    """Combination of the metrics export and the queries to Prometheus."""

    def __init__(self, *parts: Metrics) -> None:
        self._parts = parts

    def hear(self, event: AnyEvent, decision: Decision) -> None:
        for part in self._parts:
            part.hear(event, decision)

    def channels(self) -> list[int]:
        return [channel for part in self._parts for channel in part.channels()]

    def turn(self) -> None:
        for part in self._parts:
            part.turn()

    def close(self) -> None:
        for part in self._parts:
            part.close()


def of_controller(
    settings: RunSettings,
    make: str,
    clock: JobClock,
    tell: Callable[[str], None],
    handle: Callable[[AnyEvent], None],
    *parts: object,
) -> Metrics:
    """Creates the metrics export of a controller.

    `make`: "MODULE.FUNCTION" of this package, called with `parts`. `handle`: receives findings from
    Prometheus.
    """
    found: list[Metrics] = []
    if is_asked(settings):
        name, _, function = make.partition(".")
        module = importlib.import_module(f"holdfast.supervise.monitoring.{name}")
        found.append(getattr(module, function)(settings, clock, tell, *parts))
    if settings.prometheus:

        def note(finding: str, text: str) -> None:
            handle(FindingNoted(at_s=clock(), finding=finding, text=text))

        module = importlib.import_module("holdfast.supervise.monitoring.device_watch")
        found.append(module.DeviceWatch(settings.prometheus, clock, note))
    return Several(*found)

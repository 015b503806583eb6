"""Starts the export of metrics where the settings ask for it. By its name: most jobs need none of it, nor its memory."""

import importlib
from collections.abc import Callable
from typing import Protocol

from holdfast.agent.worker import WorkerAgent
from holdfast.core.job.decision import Decision
from holdfast.model.events import AnyEvent, FindingNoted
from holdfast.model.settings import RunSettings
from holdfast.observe.clock import JobClock


class Metrics(Protocol):
    """Of one process. `hear`: every decision, also those of a job that is taken up. `turn`: in each turn of its loop.

    `channels`: descriptors that wake the loop.
    """

    def hear(self, event: AnyEvent, decision: Decision) -> None: ...

    def channels(self) -> list[int]: ...

    def turn(self) -> None: ...

    def close(self) -> None: ...


class NoMetrics:
    """Nobody has asked for them."""

    def hear(self, event: AnyEvent, decision: Decision) -> None:
        """Nothing is counted."""

    def channels(self) -> list[int]:
        return []

    def turn(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is open."""


def is_asked(settings: RunSettings) -> bool:
    return bool(settings.metrics_address or settings.metrics_textfile)


class Several:
    """The export, and the questions to Prometheus: each as if it were the only one."""

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
    """`make`: "MODULE.FUNCTION" of this room, which takes `parts`. `handle`: takes what Prometheus tells of an incident."""
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


def of_agent(
    settings: RunSettings,
    job: str,
    worker: WorkerAgent,
    link: Callable[[], tuple[bool, int, int, int, int]],
    faults: Callable[[], int],
    clock: JobClock,
    tell: Callable[[str], None],
) -> Metrics:
    """`link`: connected, entries, bytes, dropped, lost."""
    if not is_asked(settings):
        return NoMetrics()
    module = importlib.import_module("holdfast.supervise.monitoring.node")
    made: Metrics = module.AgentMetrics(settings, job, worker, link, faults, clock, tell)
    return made

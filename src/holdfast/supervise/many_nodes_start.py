"""Starts a multi-node job, or reattaches to one whose controller has died."""

import os
from collections.abc import Mapping

from holdfast.controller.loop import decisions
from holdfast.core.workers.memory import Memory
from holdfast.engines.nodes import EngineRefused, NodeEngine
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import RawEntry
from holdfast.link.listening import ListenFailed
from holdfast.link.tls import TlsUnavailable
from holdfast.model.settings import RunSettings
from holdfast.model.state import State
from holdfast.supervise.many_nodes import NodesSupervisor
from holdfast.supervise.start import (
    USAGE,
    begun,
)
from holdfast.views.console import Console


def run_nodes(settings: RunSettings, engine: NodeEngine) -> int:
    """Runs the command on all nodes to its end. Returns the exit code of `holdfast run`: the training's own."""
    console = Console(quiet=settings.quiet)
    start = begun(settings, console)
    if start is None:
        return USAGE
    with start.lock:
        try:
            supervisor = NodesSupervisor(start.settings, start.job, console, os.environ, start.cwd, engine)
            return supervisor.submit()
        except (EngineRefused, ListenFailed, TlsUnavailable, OSError) as error:
            console.tell(f"the job cannot be started: {error}")
            return USAGE


def attach_nodes(
    job: JobDir,
    settings: RunSettings,
    cwd: str,
    env: Mapping[str, str],
    rows: list[RawEntry],
    engine: NodeEngine,
    *,
    moved: bool = False,
) -> int:
    """Reattaches to a multi-node job whose controller has died, from its journal.

    Returns the training's exit code.

    `job` is locked. `moved`: the scheduler has restarted the job since; nothing of it runs, which is no
    failure.
    """
    console = Console(quiet=settings.quiet)
    memory, state = Memory(), State()
    for event, decision in decisions(rows, settings.policy):
        memory.hear(event)
        state = decision.state
    memory.moved = memory.moved or moved
    try:
        supervisor = NodesSupervisor(settings, job, console, env, cwd, engine, memory)
        return supervisor.resume(state, rows)
    except (EngineRefused, ListenFailed, TlsUnavailable, OSError) as error:
        console.tell(f"cannot reattach to the job: {error}")
        return USAGE

"""Starts a multi-node job, or reattaches to one whose controller has died.

The supervisor is imported on demand: who submits a job or follows it does not need it.
"""

import importlib
import os
from collections.abc import Mapping
from typing import Any

from holdfast import struct_types
from holdfast.controller.loop import decisions
from holdfast.core.workers.memory import Memory
from holdfast.engines.nodes import EngineRefused, NodeEngine
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import RawEntry
from holdfast.link.listening import ListenFailed
from holdfast.link.tls import TlsUnavailable
from holdfast.model.settings import RunSettings
from holdfast.model.state import State
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
            supervisor = _supervising().NodesSupervisor(
                start.settings, start.job, console, os.environ, start.cwd, engine
            )
            return int(supervisor.submit())
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
        supervisor = _supervising().NodesSupervisor(settings, job, console, env, cwd, engine, memory)
        return int(supervisor.resume(state, rows))
    except (EngineRefused, ListenFailed, TlsUnavailable, OSError) as error:
        console.tell(f"cannot reattach to the job: {error}")
        return USAGE


def prepare() -> None:
    """Imports the supervisor ahead of its use, in a process that may not reach the disk later."""
    _supervising()


def _supervising() -> Any:
    module = importlib.import_module("holdfast.supervise.many_nodes")
    struct_types.prepare()
    return module

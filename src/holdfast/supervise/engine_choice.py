"""Chooses the engine of a multi-node job: simulated nodes on this machine, or those of a scheduler.

Imported on demand, because a single-node run does not need it.
"""

import importlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.controller.loop import replay
from holdfast.engines.local.hosts import clear
from holdfast.engines.local.nodes import LocalNodes, clear_leftovers
from holdfast.engines.nodes import EngineRefused, NodeEngine
from holdfast.journal.jobdir import JobDir, JobInUse
from holdfast.model.settings import RunSettings
from holdfast.model.state import Ended
from holdfast.supervise.many_nodes_start import attach_nodes, run_nodes
from holdfast.supervise.slurm.job import engine_here, follow_submitted, run_slurm, stand_by
from holdfast.supervise.start import (
    NO_RECORD,
    USAGE,
    NotTakenUp,
    kept_environment,
    locked,
    recorded,
    taken_up,
)
from holdfast.views.console import Console


def run_elsewhere(
    settings: RunSettings,
    env: Mapping[str, str],
    sbatch: Sequence[str] = (),
    pods: Mapping[str, object] | None = None,
) -> int:
    """Runs the job to its end with the engine of its settings. Returns the training's own exit code.

    `sbatch`: flags for sbatch, if the job is submitted to Slurm. `pods`: flags for Kubernetes.
    """
    if settings.engine == "slurm":
        return run_slurm(settings, env, sbatch)
    console = Console(quiet=settings.quiet)
    if settings.engine == "kubernetes":
        kubernetes = _kubernetes(console)
        return USAGE if kubernetes is None else int(kubernetes.run_kubernetes(settings, env, pods or {}))
    for folder in clear_leftovers(_is_over):
        console.tell(f"removed the simulated nodes of job {folder.name}, which has ended")
    try:
        engine = _engine(settings, env)
    except EngineRefused as error:
        console.tell(str(error))
        return USAGE
    return run_nodes(settings, engine)


def attach_elsewhere(job: JobDir, *, quiet: bool = False) -> int:
    """Reattaches to a job whose supervisor has died, from its journal. Returns the training's exit code."""
    console = Console(quiet=quiet)
    lock = locked(job, console)
    if lock is None:
        return USAGE
    with lock:
        found = taken_up(job, console, quiet=quiet)
        if isinstance(found, NotTakenUp):
            if found.has_ended:
                clear(job.path)
            return found.code
        settings, env = found.settings, kept_environment(job, console)
        try:
            engine = _engine(settings, os.environ if settings.engine == "slurm" else env)
        except EngineRefused as error:
            console.tell(str(error))
            return USAGE
        return attach_nodes(job, settings, found.cwd, env, found.rows, engine)


def attach_slurm(
    state_dir: str, name: str | None, env: Mapping[str, str], *, quiet: bool = False
) -> int | None:
    """Follows a job that was submitted to Slurm; None if there is none of that name, or this is its
    allocation.
    """
    return follow_submitted(state_dir, name, env, quiet=quiet)


def attach_kubernetes(
    state_dir: str, name: str | None, env: Mapping[str, str], *, quiet: bool = False
) -> int | None:
    """Follows a job that was submitted to Kubernetes, and returns its exit code; None if there is none of
    that name.
    """
    kubernetes = _kubernetes(Console(quiet=quiet))
    if kubernetes is None:
        return USAGE
    code: int | None = kubernetes.follow_job(state_dir, name, env, quiet=quiet)
    return code


def _kubernetes(console: Console) -> Any:
    """Imports the module for Kubernetes, which needs an extra; None if it is missing, after printing how
    to install it.
    """
    try:
        return importlib.import_module("holdfast.supervise.kubernetes.job")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("lightkube", "httpx2"):
            raise
        console.tell("--engine kubernetes needs an optional package: pip install 'holdfast[k8s]'")
        return None


def stand_by_slurm(state_dir: str, name: str, env: Mapping[str, str]) -> int:
    """Waits inside a Slurm job as its standby controller, and takes over when the job's controller is gone."""
    return stand_by(state_dir, name, env)


def _engine(settings: RunSettings, env: Mapping[str, str]) -> NodeEngine:
    """Returns the engine of a job that is resumed. Raises EngineRefused."""
    if settings.engine == "slurm":
        return engine_here(env)
    return LocalNodes(settings.nnodes + settings.spares, settings.hosts, env, time.monotonic)


def _is_over(folder: Path) -> bool:
    """Returns True if no process will need the nodes of this job again.

    A job that has not ended is not locked even for a moment, because a process that reattaches just then
    would be refused.
    """
    if not folder.is_dir():
        return True
    job = JobDir(folder)
    try:
        settings, _, rows = recorded(job)
        if not isinstance(replay(rows, settings.policy).phase, Ended):
            return False
        with job.lock():  # the supervisor that recorded the end may still remove nodes
            return True
    except (JobInUse, *NO_RECORD):
        return False

"""Builds the scene of a suite: the facts about this node, the run and the baseline that the checks need."""

import os
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.checks.training_python.run import launch_for
from holdfast.core.checks.asked import asked_by, asked_of
from holdfast.model.checks import MANUAL, Baseline, Scene


def scene_for(
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: str = "",
    *,
    context: str = MANUAL,
    quick: bool = False,
    training: bool = False,
    baseline: Baseline | None = None,
    good_s: float = 0.0,
    folders: Mapping[str, str] | None = None,
    ranks: int | None = None,
    own_pids: Sequence[int] = (),
    options: Mapping[str, str] | None = None,
    read_scripts: bool = False,
) -> Scene:
    """Returns the scene (facts about the node and the run) for checks of this node. Never raises: the checks
    themselves report missing folders.

    `command`, `env`, `cwd`: of the training to check for. `folders`: override the folders that the command names, by
    role ("checkpoint"). `read_scripts`: also read launch scripts; False if a dead mount must not block this process.
    """
    env = os.environ if env is None else env
    cwd = cwd or _here()
    asked = asked_by(launch_for(command, env, cwd), command, env) if read_scripts else asked_of(command, env)
    places = {"work": cwd, "temporary": env.get("TMPDIR") or _temporary(cwd)}
    if asked.checkpoint:
        places["checkpoint"] = str(Path(cwd) / asked.checkpoint)
    return Scene(
        context=context,
        quick=quick,
        training=training,
        host=socket.gethostname(),
        now_s=time.time(),
        good_s=good_s,
        ranks=ranks if ranks is not None else asked.ranks,
        nodes=asked.nodes,
        loader_workers=asked.loader_workers,
        command=tuple(command),
        env=dict(env),
        cwd=cwd,
        folders=places | dict(folders or {}),
        own_pids=(os.getpid(), os.getppid(), *own_pids),
        baseline=baseline or Baseline(),
        options=dict(options or {}),
    )


def _temporary(cwd: str) -> str:
    """Where Python puts temporary files; the working folder where no folder can be written."""
    try:
        return tempfile.gettempdir()
    except OSError:
        return cwd


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"

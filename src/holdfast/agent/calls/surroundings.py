"""Chooses the folder and environment of a user's command on a node: those of the training there, without
variables that only the training needs. Only reads.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.agent.environment import SHIM
from holdfast.observe.processes.worker_facts import worker_facts

ENVIRON_BYTES_MAX = 1 << 20
WORKER_DIR = "HOLDFAST_WORKER_DIR"
# A rank's place in the training, the training's rendezvous, variables of the shim and of agents.
NOT_FOR_CALLS = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_PORT|PET_\w+|TORCHELASTIC_\w+"
    r"|HOLDFAST_(SHIM|RANK_OWNER|GATE|PRELOAD|SECRET_FILE|CONTROLLER)"
)


class Surroundings(NamedTuple):
    env: dict[str, str]
    cwd: str


def surroundings(folder: Path | None, base: Mapping[str, str], cwd: str) -> Surroundings:
    """Returns the environment and folder of the training command that runs in this worker's folder.

    If no training command runs there, returns `base` and `cwd`, those of the agent.
    """
    pid = worker_facts(folder).command_pid if folder is not None else None
    env = _environment(pid) if pid is not None else {}
    if folder is None or not _is_of(env, folder):
        env, pid = dict(base), None
    return Surroundings(_for_calls(env, folder), _folder_of(pid) or cwd)


def _is_of(env: Mapping[str, str], folder: Path) -> bool:
    """Returns whether an environment is that of this worker's training; False if the pid was reused."""
    return env.get(WORKER_DIR, "") == str(folder)


def _for_calls(env: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """Returns the environment without variables by which Python or NCCL would write files into the worker's
    folder.

    The value of the folder's variable gets a trailing slash, because processes of the training are recognised
    by its exact value.
    """
    place = f"{folder}/" if folder is not None else ""
    kept = {
        key: value
        for key, value in env.items()
        if not NOT_FOR_CALLS.fullmatch(key) and not (place and value.startswith(place))
    }
    if "PYTHONPATH" in kept:
        paths = [path for path in kept["PYTHONPATH"].split(":") if path != str(SHIM)]
        kept["PYTHONPATH"] = ":".join(paths)
        if not paths:
            del kept["PYTHONPATH"]
    kept.pop(WORKER_DIR, None)
    return kept | {WORKER_DIR: place} if place else kept


def _environment(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read(ENVIRON_BYTES_MAX).split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)


def _folder_of(pid: int | None) -> str:
    if pid is None:
        return ""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""

"""Reads from a training's command and environment what it needs of its nodes. Pure.

("torchrun", "--nnodes=2", "--nproc-per-node", "8", "train.py", "--num-workers", "4", "--save", "/ckpt")
-> ranks 8, nodes 2, loader_workers 4, checkpoint "/ckpt", script "train.py"

A shell script that the command runs is read for its launch where `texts` has its text (`Launch.reads` names it).
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.checks.env.command import launch_of
from holdfast.core.checks.env.launchers import Launch, options_of
from holdfast.core.checks.env.shell_text import is_known

RANKS_MAX = 1 << 16
_RANKS = ("nproc-per-node", "num-gpus", "gpus-per-node", "ntasks-per-node", "nproc", "devices")
_NODES = ("nnodes", "num-nodes", "num-machines", "nodes")
_LOADERS = ("num-workers", "dataloader-num-workers", "dataloader-workers", "workers", "data-workers")
_CHECKPOINTS = (
    "save",
    "output-dir",
    "checkpoint-dir",
    "checkpoint-path",
    "ckpt-dir",
    "ckpt-path",
    "save-dir",
    "save-path",
    "default-root-dir",
    "work-dir",
    "checkpoint-folder",
)
_RESUMES = ("load", "resume-from-checkpoint", "resume-from", "resume", "load-checkpoint", "init-checkpoint")
_NO_PATHS = frozenset(("", "true", "false", "1", "0", "auto", "latest", "last", "yes", "no", "none"))
_PORTS = ("master-port", "main-process-port")
_ADDRESSES = ("master-addr", "main-process-ip")
STATIC_PORT, C10D_PORT = 29500, 29400


class Meeting(Struct, frozen=True, kw_only=True):
    """Where the workers meet. `port` 0: chosen freely. `backend`: "static", "c10d", "etcd", "env" (the script).

    `rank`: of this node, None if unknown. `usual`: no port is named, the launcher's default applies.
    """

    backend: str
    host: str = ""
    port: int = 0
    rank: int | None = None
    usual: bool = False


class Asked(Struct, frozen=True, kw_only=True):
    """`ranks`, `loader_workers`: on one node; None if unknown. `checkpoint`, `script`: empty: none named.

    Paths are relative to the folder in which the command starts. `resume`: the checkpoint to load. `meeting`: None:
    none named.
    """

    ranks: int | None = None
    nodes: int = 1
    loader_workers: int | None = None
    checkpoint: str = ""
    resume: str = ""
    script: str = ""
    framework: str = ""  # deepspeed, accelerate, ...: what the command names
    meeting: Meeting | None = None


def asked_of(command: Sequence[str], env: Mapping[str, str], texts: Mapping[str, str] | None = None) -> Asked:
    """The needs named in the command's words, else in the environment."""
    return asked_by(launch_of(command, env, texts), command, env)


def asked_by(launch: Launch, command: Sequence[str], env: Mapping[str, str]) -> Asked:
    """The needs named in a parsed launch."""
    words = launch.words or tuple(command)
    options = options_of(words)
    before = options_of(command) if launch.shell is None else launch.wrapper_options
    env = {**env, **launch.env}
    nodes = _nodes(options, before, env)
    return Asked(
        ranks=_ranks(launch, options, before, env, nodes),
        nodes=nodes,
        loader_workers=_whole(_first(options, _LOADERS)),
        checkpoint=_folder(_first(options, _CHECKPOINTS), launch.folder),
        resume=_folder(_path(_first(options, _RESUMES)), launch.folder),
        script=launch.script or next((word for word in words if word.endswith(".py")), ""),
        framework=_framework(launch, words),
        meeting=_meeting(launch, env, nodes),
    )


def _ranks(
    launch: Launch, options: Mapping[str, str], before: Mapping[str, str], env: Mapping[str, str], nodes: int
) -> int | None:
    """`--num-processes` of accelerate is of all nodes together."""
    said = _count(_first(launch.options, _RANKS)) or _count(_first(options, _RANKS))
    if said is None and (
        of_all := _count(launch.options.get("num-processes", options.get("num-processes", "")))
    ):
        said = max(of_all // nodes, 1)
    included = launch.options.get("include") or launch.options.get("i", "")
    if said is None and launch.launcher == "deepspeed" and re.fullmatch(r"localhost:\d+(?:,\d+)*", included):
        said = len(included.partition(":")[2].split(",")) or None
    if said is None and launch.launcher == "torchrun" and not _first(options, _RANKS):
        said = _count(env.get("PET_NPROC_PER_NODE", "")) or (1 if launch.options or launch.script else None)
    if said is None:
        said = _count(_first(before, _RANKS)) or _count(env.get("LOCAL_WORLD_SIZE", ""))
    return said


def _nodes(options: Mapping[str, str], before: Mapping[str, str], env: Mapping[str, str]) -> int:
    text = _first(options, _NODES) or _first(before, _NODES) or env.get("PET_NNODES") or env.get("NNODES", "")
    return _count(text.rpartition(":")[2]) or 1


def _meeting(launch: Launch, env: Mapping[str, str], nodes: int) -> Meeting | None:
    options = launch.options
    if launch.launcher == "torchrun":
        return _of_torchrun(options, env)
    text = _first(options, _PORTS)
    port = _port(text)
    host = _first(options, _ADDRESSES)
    rank = _whole(options.get("node-rank") or options.get("machine-rank", ""))
    if launch.launcher == "deepspeed":
        rank = rank if nodes > 1 else 0
        usual = STATIC_PORT if port is None else port
        return Meeting(backend="static", host=host, port=usual, rank=rank, usual=not text)
    if launch.launcher == "accelerate":
        if port is None and nodes == 1:
            return None  # a free one is looked for, or a file of settings says it
        rank = 0 if nodes == 1 else rank
        return Meeting(backend="static", host=host, port=STATIC_PORT if port is None else port, rank=rank)
    port = _count(env.get("MASTER_PORT", ""))
    if launch.launcher == "python" and port and env.get("WORLD_SIZE") and env.get("RANK") is not None:
        first = 0 if env.get("RANK") == "0" else 1
        return Meeting(backend="env", host=env.get("MASTER_ADDR", ""), port=port, rank=first)
    return None


def _of_torchrun(options: Mapping[str, str], env: Mapping[str, str]) -> Meeting:
    """source: torch/distributed/run.py; without anything said: static, 127.0.0.1, port 29500."""

    def said(name: str) -> str:
        return options.get(name) or env.get(f"PET_{name.upper().replace('-', '_')}", "")

    if "standalone" in options or "PET_STANDALONE" in env:
        return Meeting(backend="c10d", host="localhost", port=0, rank=0)
    backend = said("rdzv-backend") or "static"
    rank = _whole(said("node-rank"))
    endpoint = said("rdzv-endpoint")
    host, _, text = endpoint.rpartition(":") if _has_port(endpoint) else (endpoint, "", "")
    host = host.strip("[]")
    if backend == "static":
        port = _port(text) if endpoint else _port(said("master-port"))
        host = host or said("master-addr") or "127.0.0.1"
        is_usual = port is None
        port = STATIC_PORT if port is None else port
        rank = 0 if not said("node-rank") else rank
        return Meeting(backend="static", host=host, port=port, rank=rank, usual=is_usual)
    port = _port(text)
    usual = C10D_PORT if backend == "c10d" else 2379
    return Meeting(backend=backend, host=host or "localhost", port=usual if port is None else port, rank=rank)


def _port(text: str) -> int | None:
    """None if none is named. 0: one that only a run can tell."""
    return (_whole(text) or 0) if text else None


def _has_port(endpoint: str) -> bool:
    head, colon, tail = endpoint.rpartition(":")
    return bool(colon) and (tail.isdigit() or not is_known(tail)) and (":" not in head or head.endswith("]"))


def _first(options: Mapping[str, str], names: Sequence[str]) -> str:
    return next((options[name] for name in names if options.get(name)), "")


def _folder(path: str, seen_from: str) -> str:
    """Empty for one that is not of this machine (s3://...), and for one that is only known at run time."""
    is_whole = path.startswith(("/", "~")) or not seen_from
    full = path if not path or is_whole else f"{seen_from}/{path.removeprefix('./')}"
    return "" if "://" in full or "$" in full or "`" in full else full


def _path(text: str) -> str:
    return "" if text.lower() in _NO_PATHS else text


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _count(text: str) -> int | None:
    count = _whole(text)
    return count if count and count <= RANKS_MAX else None


def _framework(launch: Launch, words: Sequence[str]) -> str:
    if launch.launcher in ("deepspeed", "accelerate", "colossalai", "composer"):
        return launch.launcher
    for word in words:
        name = word.rpartition("/")[2].removesuffix(".py").removesuffix(".launcher.runner")
        if name in ("deepspeed", "accelerate", "colossalai", "composer", "megatron"):
            return name
    return "deepspeed" if any(word.startswith("--deepspeed") for word in words) else ""

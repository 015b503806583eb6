"""Extracts from a training's command and environment what it requires of its nodes. Pure.

("torchrun", "--nnodes=2", "--nproc-per-node", "8", "train.py", "--num-workers", "4", "--save", "/ckpt") ->
ranks 8, nodes 2, loader_workers 4, checkpoint "/ckpt", script "train.py"

A shell script in the command is parsed for its launch if `texts` has its content (`Launch.reads` names it).
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
    """The rendezvous of a training: the address at which its workers connect.

    `port` 0: any free port. `backend`: "static", "c10d", "etcd", or "env" (the script decides). `rank`: node rank of
    this node; None if unknown. `usual`: no port is given, so the launcher's default applies.
    """

    backend: str
    host: str = ""
    port: int = 0
    rank: int | None = None
    usual: bool = False


class Asked(Struct, frozen=True, kw_only=True):
    """What a training requires of a node.

    `ranks`, `loader_workers`: on one node; None if unknown. `checkpoint`, `script`: empty if not given. Paths
    are relative to the folder in which the command starts. `resume`: the checkpoint to load. `meeting`: None
    if none is given.
    """

    ranks: int | None = None
    nodes: int = 1
    loader_workers: int | None = None
    checkpoint: str = ""
    resume: str = ""
    script: str = ""
    framework: str = ""  # deepspeed, accelerate, ...: as named in the command
    meeting: Meeting | None = None


def asked_of(command: Sequence[str], env: Mapping[str, str], texts: Mapping[str, str] | None = None) -> Asked:
    """Returns the requirements given in the command's words, else in the environment.

    `texts`: contents of shell scripts that the command runs, by name.
    """
    return asked_by(launch_of(command, env, texts), command, env)


def asked_by(launch: Launch, command: Sequence[str], env: Mapping[str, str]) -> Asked:
    """Returns the requirements given in a parsed launch, else in the environment."""
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
    """Returns the number of ranks on one node; `--num-processes` of accelerate counts those of all nodes."""
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
            return None  # the launcher takes a free port, or one from a configuration file
        rank = 0 if nodes == 1 else rank
        return Meeting(backend="static", host=host, port=STATIC_PORT if port is None else port, rank=rank)
    port = _count(env.get("MASTER_PORT", ""))
    if launch.launcher == "python" and port and env.get("WORLD_SIZE") and env.get("RANK") is not None:
        first = 0 if env.get("RANK") == "0" else 1
        return Meeting(backend="env", host=env.get("MASTER_ADDR", ""), port=port, rank=first)
    return None


def _of_torchrun(options: Mapping[str, str], env: Mapping[str, str]) -> Meeting:
    """Returns the rendezvous of torchrun; by default static, at 127.0.0.1, port 29500.

    source: torch/distributed/run.py
    """

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
    """Returns the port; None if none is given, 0 if it is known only at run time."""
    return (_whole(text) or 0) if text else None


def _has_port(endpoint: str) -> bool:
    head, colon, tail = endpoint.rpartition(":")
    return bool(colon) and (tail.isdigit() or not is_known(tail)) and (":" not in head or head.endswith("]"))


def _first(options: Mapping[str, str], names: Sequence[str]) -> str:
    return next((options[name] for name in names if options.get(name)), "")


def _folder(path: str, seen_from: str) -> str:
    """Returns the path of a local folder; empty for a remote address (s3://...) or a path known only at run
    time.
    """
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

"""What a training asks of its nodes, as far as its command and environment say so. Pure.

("torchrun", "--nnodes=2", "--nproc-per-node", "8", "train.py", "--num-workers", "4", "--save", "/ckpt")
-> ranks 8, nodes 2, loader_workers 4, checkpoint "/ckpt", script "train.py"
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

RANKS_MAX = 1 << 16
_RANKS = ("nproc-per-node", "num-gpus", "num-processes", "gpus-per-node", "ntasks-per-node")
_NODES = ("nnodes", "num-nodes", "num-machines")
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


class Asked(Struct, frozen=True, kw_only=True):
    """`ranks`, `loader_workers`: on one node; None: it does not say. `checkpoint`, `script`: empty: none named."""

    ranks: int | None = None
    nodes: int = 1
    loader_workers: int | None = None
    checkpoint: str = ""
    script: str = ""
    framework: str = ""  # deepspeed, accelerate, ...: what the command names


def asked_of(command: Sequence[str], env: Mapping[str, str]) -> Asked:
    """Of the words of the command; of the environment where they do not say it."""
    options = _options(command)
    return Asked(
        ranks=_count(_first(options, _RANKS) or env.get("LOCAL_WORLD_SIZE", "")),
        nodes=_count((_first(options, _NODES) or env.get("NNODES", "")).rpartition(":")[2]) or 1,
        loader_workers=_whole(_first(options, _LOADERS)),
        checkpoint=_first(options, _CHECKPOINTS),
        script=next((word for word in command if word.endswith(".py")), ""),
        framework=_framework(command),
    )


def _options(command: Sequence[str]) -> dict[str, str]:
    """Every `--name value` and `--name=value`, whoever of the command's programs it is for; the first of each."""
    found: dict[str, str] = {}
    for index, word in enumerate(command):
        if not word.startswith("--") or len(word) < 3:
            continue
        name, has_value, value = word[2:].partition("=")
        if not has_value:
            value = command[index + 1] if index + 1 < len(command) else ""
            value = "" if value.startswith("--") else value
        found.setdefault(name.replace("_", "-").lower(), value)
    return found


def _first(options: Mapping[str, str], names: Sequence[str]) -> str:
    return next((options[name] for name in names if options.get(name)), "")


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _count(text: str) -> int | None:
    count = _whole(text)
    return count if count and count <= RANKS_MAX else None


def _framework(command: Sequence[str]) -> str:
    for word in command:
        name = word.rpartition("/")[2].removesuffix(".py").removesuffix(".launcher.runner")
        if name in ("deepspeed", "accelerate", "colossalai", "composer", "megatron"):
            return name
    return "deepspeed" if any(word.startswith("--deepspeed") for word in command) else ""

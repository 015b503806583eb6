"""Parses a launch command: whether it is torchrun, restarts ranks, and has a fixed rendezvous address. Pure.

    ("torchrun", "--standalone", "--nproc-per-node", "4", "train.py")
    ("python3", "-u", "-m", "torch.distributed.run", "--rdzv-endpoint=host:29400", "train.py")

source: torchrun --help of PyTorch 2.13 (options may be written with - or _, with = or a blank)
"""

from collections.abc import Mapping

from msgspec import Struct

_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic.run")
_FLAGS = frozenset(("standalone", "no-python", "module", "run-path", "m", "use-env"))  # take no value
_ADDRESS = ("master-port", "rdzv-endpoint", "rdzv-id")


class Launcher(Struct, frozen=True, kw_only=True):
    """The launcher in a launch command.

    `restarts`: how often it restarts its ranks itself. `fixed_address`: the rendezvous address is in the
    command, so that two copies cannot run at the same time. `rendezvous`: its backend. `runs_python`: it starts its ranks
    with its own Python; False: with another program, which may drop the environment.
    """

    is_torchrun: bool = False
    restarts: int = 0
    fixed_address: bool = False
    rendezvous: str = "static"
    runs_python: bool = True
    python: str = ""  # the Python that runs it, if the command contains it


def recognise(argv: tuple[str, ...], env: Mapping[str, str]) -> Launcher:
    """Returns the launcher in a command; for a command other than torchrun, a Launcher with default fields."""
    arguments = _torchrun_arguments(argv)
    if arguments is None:
        return Launcher()
    options = _options(arguments)
    restarts = options.get("max-restarts", env.get("PET_MAX_RESTARTS", "0"))
    fixed = any(name in options or f"PET_{name.upper().replace('-', '_')}" in env for name in _ADDRESS)
    return Launcher(
        is_torchrun=True,
        restarts=int(restarts) if restarts.isdigit() else 0,
        fixed_address=fixed and "standalone" not in options,
        runs_python="no-python" not in options and not env.get("PYTHON_EXEC"),
        rendezvous=options.get("rdzv-backend", env.get("PET_RDZV_BACKEND", "static")),
        python="" if _name(argv[0]) == "torchrun" else argv[0],
    )


def _torchrun_arguments(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    if not argv:
        return None
    if _name(argv[0]) == "torchrun":
        return argv[1:]
    if not _name(argv[0]).startswith("python"):
        return None
    for index, word in enumerate(argv[1:], start=1):
        if word == "-m" and index + 1 < len(argv):
            return argv[index + 2 :] if argv[index + 1] in _MODULES else None
        if not word.startswith("-"):
            return argv[index + 1 :] if _name(word) == "torchrun" else None
    return None


def _options(arguments: tuple[str, ...]) -> dict[str, str]:
    """Returns the launcher's own options: those before the script."""
    found: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            break
        name, has_value, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if not has_value and name not in _FLAGS:
            value = next(words, "")
        found[name] = value
    return found


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]

"""Lists the systems of the benchmark by name. A new system is a module beside this one and a row here."""

from collections.abc import Callable

from bench.faults.systems import dlrover, ft_launcher, holdfast, torchft, torchrun
from bench.faults.systems.base import NotHere, System

SYSTEMS: dict[str, Callable[[int], System]] = {
    "holdfast": holdfast.system,
    "holdfast-cold": lambda ranks: holdfast.system(ranks, "--no-standby"),
    "holdfast-standby": lambda ranks: holdfast.system(ranks, "--no-zygote"),
    "torchrun": torchrun.system,
    "torchrun-once": torchrun.once,
    "ft_launcher": ft_launcher.system,
    "dlrover": dlrover.system,
    "torchft": torchft.system,
}


def system(name: str, ranks: int) -> System:
    """Returns the system of that name. raises: NotHere, if the name is unknown or the system cannot be installed."""
    if name not in SYSTEMS:
        raise NotHere(f"there is no system {name}; there are {', '.join(SYSTEMS)}")
    return SYSTEMS[name](ranks)

"""Defines data types of a job's placement: where its ranks run, which process groups they form, and what is placed
badly.
"""

from typing import Literal

from msgspec import Struct

Role = Literal["tensor", "pipeline", "data", "context", "expert", "world", "unknown"]
PlacementKind = Literal["tensor-over-nodes", "group-over-switches", "ring-order", "numa", "nic", "shared-gpu"]


class RankPlace(Struct, frozen=True, kw_only=True):
    """Where one rank runs. None or empty: not known, or not on this machine.

    `gpu`: PCI address. `cpu_numa`: NUMA nodes of the processors it may use. `gpu_numa`: that of its GPU.
    `nics`: network devices its communication is limited to, with the NUMA node of each.
    """

    rank: int
    node: str
    worker: int = 0
    pid: int | None = None
    gpu: str = ""
    cpu_numa: tuple[int, ...] = ()
    gpu_numa: int | None = None
    nics: tuple[tuple[str, int], ...] = ()


class GpuUse(Struct, frozen=True, kw_only=True):
    """One process that uses a GPU of a node."""

    node: str
    gpu: str
    job: str
    rank: int
    pid: int


class RoleGroup(Struct, frozen=True, kw_only=True):
    """A process group and what it is used for (its kind of parallelism). `is_guessed`: guessed from its shape,
    because its name does not show it.
    """

    name: str
    role: Role
    ranks: tuple[int, ...]
    is_guessed: bool = False


class PlacementFinding(Struct, frozen=True, kw_only=True):
    """Something placed badly. `change`: what to do."""

    kind: PlacementKind
    text: str
    change: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()


class Placement(Struct, frozen=True, kw_only=True):
    """The result of examining a job's placement: roles and sizes of its process groups, and findings. `unknown`: what
    could not be examined, in words.
    """

    groups: tuple[RoleGroup, ...] = ()
    findings: tuple[PlacementFinding, ...] = ()
    unknown: tuple[str, ...] = ()

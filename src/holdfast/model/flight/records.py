"""Defines the contents of PyTorch's flight recorder of one rank: enqueued collectives, and the progress of each
group.

source: torch/csrc/distributed/c10d/FlightRecorder*.hpp, formats 2.0 (torch 2.4) to 2.10 (torch 2.13)
"""

from typing import Literal

from msgspec import Struct

OperationState = Literal["scheduled", "started", "completed"]


class Operation(Struct, frozen=True, kw_only=True):
    """One entry of a record: a collective, a send or receive, or a coalesced batch of them.

    `sequence` counts the collectives of its group from 1, the same on all its ranks; `p2p_sequence` counts point to
    point operations. `record_id` counts all entries of the process: rings wrap, so it is never compared between ranks.
    On gloo `state` stays "scheduled" whatever happens: only `retired` tells that it has ended (well or not).
    """

    group: str  # the name that all its ranks know it by: process_group[0], else str(pg_id)
    group_about: str = ""  # process_group[1]: "default_pg", "DATA_PARALLEL_GROUP"
    group_id: int = -1  # local to the process
    sequence: int = 0
    p2p_sequence: int = 0
    operation_id: int = 0
    record_id: int = 0
    kind: str = ""  # "all_reduce", "send 0->1", "recv 1<-0", "coalesced"
    backend: str = ""  # "nccl", "gloo", "hccl", ...
    is_p2p: bool = False
    input_sizes: tuple[tuple[int, ...], ...] = ()
    input_types: tuple[str, ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    output_types: tuple[str, ...] = ()
    state: OperationState = "scheduled"
    retired: bool = False
    created_ns: int = 0  # wall clock of its node
    started_ns: int | None = None
    completed_ns: int | None = None
    timeout_ms: int = 0


class Group(Struct, frozen=True, kw_only=True):
    """A process group by name. `ranks`: its members as ranks of the whole job, sorted; empty if not known."""

    name: str
    about: str = ""
    ranks: tuple[int, ...] = ()
    backend: str = ""


class GroupStatus(Struct, frozen=True, array_like=True, gc=False):
    """A rank's progress in one group: sequence numbers; -1 if the backend does not count them.

    The cheapest reading (25-34 us), taken once a second: enqueued > completed means that it waits.
    """

    group_id: int  # local to the process; its name is learnt from operations with that id
    enqueued: int
    started: int
    completed: int


class FlightRecord(Struct, frozen=True, kw_only=True):
    """Everything one rank's recorder held. Operations in the order in which they were enqueued."""

    rank: int
    version: str = ""
    library: str = ""  # NCCL's version
    groups: dict[str, Group] = {}
    status: tuple[GroupStatus, ...] = ()
    operations: tuple[Operation, ...] = ()
    file: str = ""
    is_wrapped: bool = False  # older operations have been overwritten, or were left out (active ones only)
    notes: tuple[str, ...] = ()  # what was odd about it, in words


class Entered(Struct, frozen=True, kw_only=True, gc=False):
    """When one rank entered collectives of one group, in order: seconds by its node's wall clock.

    `device`: times of the calls, not of the device.
    """

    rank: int
    group: str
    sequences: tuple[int, ...]
    at_s: tuple[float, ...]
    device: bool = False

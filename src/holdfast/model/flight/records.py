"""Defines the contents of PyTorch's flight recorder of one rank: enqueued collectives, and the state of each
group.

source: torch/csrc/distributed/c10d/FlightRecorder*.hpp, formats 2.0 (torch 2.4) to 2.10 (torch 2.13)
"""

from typing import Literal

from msgspec import Struct

OperationState = Literal["scheduled", "started", "completed"]


class Operation(Struct, frozen=True, kw_only=True):
    """One entry of a flight record: a collective, a send or receive, or a coalesced batch of them.

    `sequence` counts the collectives of its group from 1, equal on all its ranks; `p2p_sequence` counts
    point-to-point operations. `record_id` counts all entries of the process: ring buffers wrap, so it is
    never compared between ranks. On gloo `state` always stays "scheduled": only `retired` shows that the
    operation has ended (with success or not).
    """

    group: str  # name that all its ranks share: process_group[0], else str(pg_id)
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
    """A process group. `ranks`: its members as ranks of the whole job, sorted; empty if unknown."""

    name: str
    about: str = ""
    ranks: tuple[int, ...] = ()
    backend: str = ""


class GroupStatus(Struct, frozen=True, array_like=True, gc=False):
    """A rank's progress in one process group, as sequence numbers; -1 if the backend does not count them.

    The cheapest query (25-34 us), made once a second: enqueued > completed means that the rank waits.
    """

    group_id: int  # local to the process; operations with that id show its name
    enqueued: int
    started: int
    completed: int


class FlightRecord(Struct, frozen=True, kw_only=True):
    """The flight record of one rank, with its operations in the order of enqueueing."""

    rank: int
    version: str = ""
    library: str = ""  # NCCL's version
    groups: dict[str, Group] = {}
    status: tuple[GroupStatus, ...] = ()
    operations: tuple[Operation, ...] = ()
    file: str = ""
    is_wrapped: bool = False  # older operations were overwritten, or only active ones were dumped
    notes: tuple[str, ...] = ()  # irregularities of the record, for people


class Entered(Struct, frozen=True, kw_only=True, gc=False):
    """When one rank entered collectives of one group, in order, in seconds on its node's wall clock.

    `device`: the times are those of the calls, not of the device.
    """

    rank: int
    group: str
    sequences: tuple[int, ...]
    at_s: tuple[float, ...]
    device: bool = False

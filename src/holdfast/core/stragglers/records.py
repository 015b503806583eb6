"""Extracts from flight records when ranks entered their collectives. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from holdfast.model.flight.records import Entered, FlightRecord, Operation

ON_DEVICE = ("nccl", "hccl", "xccl", "mccl", "rccl", "cncl", "flagcx")  # backends with asynchronous calls


class Arrival(Struct, frozen=True, gc=False):
    """When the ranks of a group entered one collective.

    `at`: seconds on each node's wall clock, by global rank.

    `device`: True if the ranks only queued the collective on a device; `at` has the times of these calls.
    """

    group: str
    sequence: int
    at: dict[int, float]
    device: bool = False


def arrivals(records: Iterable[FlightRecord]) -> list[Arrival]:
    """Returns the arrivals at collectives that every rank of the group recorded, in order of time.

    Leaves out collectives that some records lack, and point-to-point operations.
    """
    return joined([one for record in records for one in entered(record)])


def entered(record: FlightRecord, most: int | None = None) -> list[Entered]:
    """Returns the arrivals in one rank's flight record, by group. `most`: only this many last ones."""
    found: dict[str, dict[int, float]] = {}
    kinds: dict[str, bool] = {}
    for operation, at_ns in list(_entered(record.operations))[-most if most else None :]:
        name = _name(record, operation)
        found.setdefault(name, {}).setdefault(operation.sequence, at_ns / 1e9)  # of a batch the first part
        kinds[name] = operation.started_ns is None and _is_on_device(operation)
    return [
        Entered(
            rank=record.rank,
            group=name,
            sequences=tuple(at),
            at_s=tuple(at.values()),
            device=kinds[name],
        )
        for name, at in found.items()
    ]


def joined(records: Sequence[Entered]) -> list[Arrival]:
    """Returns the arrivals at collectives that every rank of the group recorded, from each rank's own
    arrivals.
    """
    found: dict[tuple[str, int], dict[int, float]] = {}
    members: dict[str, set[int]] = {}
    kinds: dict[str, bool] = {}
    for one in records:
        members.setdefault(one.group, set()).add(one.rank)
        kinds[one.group] = one.device
        for sequence, at_s in zip(one.sequences, one.at_s, strict=False):
            found.setdefault((one.group, sequence), {}).setdefault(one.rank, at_s)
    whole = [
        Arrival(group, sequence, at, kinds[group])
        for (group, sequence), at in found.items()
        if len(at) == len(members[group]) > 1
    ]
    return sorted(whole, key=lambda one: (max(one.at.values()), one.group, one.sequence))


def peers(records: Iterable[FlightRecord]) -> dict[int, str]:
    """Returns the data-parallel group of each rank, if groups are named as in Megatron and DeepSpeed; empty
    if unknown.

    The ranks of one data-parallel group run the same part of the model.
    """
    found: dict[int, str] = {}
    for record in records:
        named = [
            (len(group.ranks), name)
            for name, group in record.groups.items()
            if _is_data_parallel(group.about) and len(group.ranks) > 1
        ]
        if named:
            found[record.rank] = max(named)[1]
    return found


def _entered(operations: Iterable[Operation]) -> Iterator[tuple[Operation, int]]:
    for operation in operations:
        at_ns = operation.started_ns or operation.created_ns
        if not operation.is_p2p and operation.sequence > 0 and at_ns > 0:
            yield operation, at_ns


def _name(record: FlightRecord, operation: Operation) -> str:
    """Returns a unique name of the group, since groups of different ranks may have the same name."""
    group = record.groups.get(operation.group)
    ranks = group.ranks if group is not None else ()
    return f"{operation.group} {ranks[0]}-{ranks[-1]}/{len(ranks)}" if ranks else operation.group


def _is_on_device(operation: Operation) -> bool:
    backend = operation.backend.lower() or operation.kind.lower()
    return backend.startswith(ON_DEVICE)


def _is_data_parallel(about: str) -> bool:
    words = about.lower()
    return "data_parallel" in words and "expert" not in words or words in ("dp", "dp_shard", "fsdp")

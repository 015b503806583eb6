"""Reduces one rank's flight record to a digest of at most about 2 KB, with what the analysis of all ranks
needs. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.flight import signature
from holdfast.core.flight.members import runs
from holdfast.model.flight.digests import Digest, GroupDigest, Waiting
from holdfast.model.flight.records import FlightRecord, Group, GroupStatus, Operation

KEYS_KEPT = 12  # per group: sequence numbers around the oldest pending operation
KEYS_AFTER = 4  # of these, after the oldest pending operation
ARRIVALS_KEPT = 6  # per group
ORDER_KEPT = 48
ORDER_AFTER = 8  # operations after the oldest pending one
GROUPS_KEPT = 24  # the most recently used ones
P2P_PEERS_KEPT = 4  # per group
GAP_MS_MAX = 65535
NAME_CHARS = 48
NOTES_KEPT, NOTE_CHARS = 3, 60
MS = 1_000_000  # ns


class _Seen:
    """The operations of one process group in the ring buffer, collected in one pass from old to new."""

    __slots__ = (
        "about",
        "backend",
        "collectives",
        "first",
        "group_id",
        "has_p2p",
        "last",
        "retired",
        "waiting",
    )

    def __init__(self, operation: Operation) -> None:
        self.group_id = operation.group_id
        self.about = operation.group_about
        self.backend = operation.backend
        self.has_p2p = False
        self.first = 0
        self.retired = 0  # the highest sequence that has ended
        self.last = -1  # place of the last operation
        self.collectives: list[int] = []  # places
        self.waiting: list[int] = []  # places


def digest(
    record: FlightRecord, groups: Mapping[str, Group] | None = None, *, taken_ns: int | None = None
) -> Digest:
    """Returns the digest of one rank's flight record.

    `groups`: members by group name, from another source (gloo's records have none). `taken_ns`: when the
    record was read, on the wall clock that stamped its operations; it gives the age of the oldest operation.
    """
    known = {**record.groups, **(groups or {})}
    operations = record.operations
    seen = _read(operations)
    status = {one.group_id: one for one in record.status}
    stalled = {
        name: _still_waiting(group, operations, status.get(group.group_id)) for name, group in seen.items()
    }
    newest = max((group.last for group in seen.values()), default=-1)
    # the group used last comes first, then groups with pending operations
    order = sorted(seen, key=lambda name: (seen[name].last != newest, not stalled[name], -seen[name].last))
    order = order[:GROUPS_KEPT]
    oldest = min(
        ((places[0], name) for name, places in stalled.items() if places and name in order), default=None
    )
    start, end = _window(len(operations), oldest[0] if oldest else -1)
    slots = {name: slot for slot, name in enumerate(order)}
    named = {one.group_id for one in seen.values()}
    group_digests = [
        _group(name, seen[name], stalled[name], operations, status, known.get(name)) for name in order
    ]
    if oldest:  # words are long: only for what it waits in, and what it did last
        first = _waiting(operations[oldest[0]], oldest[0], start, end)
        group_digests[slots[oldest[1]]] = replace(group_digests[slots[oldest[1]]], waiting=(first,))
    if order:
        group_digests[0] = replace(group_digests[0], last=signature.words(operations[-1]))
    return Digest(
        rank=record.rank,
        version=record.version,
        groups=(*group_digests, *_idle(known, seen, record, GROUPS_KEPT - len(order))),
        unnamed=tuple(one for one in record.status if one.group_id not in named)[:GROUPS_KEPT],
        oldest=slots[oldest[1]] if oldest else -1,
        newest=0 if order else -1,
        order=b"".join(_order(operations[start:end], slots)),
        taken_ms=(taken_ns or 0) // MS,
        last_ms=operations[-1].created_ns // MS if operations else 0,
        longest_gap_ms=_longest_gap_ms(operations),
        operations=len(operations),
        is_wrapped=record.is_wrapped,
        notes=tuple(note[:NOTE_CHARS] for note in record.notes[:NOTES_KEPT]),
    )


def _read(operations: Sequence[Operation]) -> dict[str, _Seen]:
    seen: dict[str, _Seen] = {}
    for place, operation in enumerate(operations):
        group = seen.get(operation.group)
        if group is None:
            group = seen[operation.group] = _Seen(operation)
        rides_along = _rides_along(operation, group, operations)
        group.last = place
        ended = operation.retired or operation.state == "completed"
        if operation.is_p2p:
            group.has_p2p = True
        elif operation.sequence <= 0 or rides_along:
            group.has_p2p = group.has_p2p or operation.p2p_sequence > 0
            continue
        else:
            group.collectives.append(place)
            group.first = group.first or operation.sequence
            if ended:
                group.retired = max(group.retired, operation.sequence)
        if not ended:
            group.waiting.append(place)
    return seen


def _rides_along(operation: Operation, group: _Seen, operations: Sequence[Operation]) -> bool:
    """Returns whether an entry stands for a coalesced batch of sends and receives, which is no collective of
    its group.
    """
    if signature.bare(operation.kind) != "coalesced":
        return False
    before = operations[group.last] if group.last >= 0 else None
    if before is not None and before.is_p2p and before.sequence == operation.sequence:
        return True
    last = operations[group.collectives[-1]].sequence if group.collectives else 0
    return operation.p2p_sequence > 0 and operation.sequence <= last


def _still_waiting(seen: _Seen, operations: Sequence[Operation], status: GroupStatus | None) -> list[int]:
    """Returns the positions of pending operations, without those that later operations of the group have
    overtaken.
    """
    completed = seen.retired if status is None or seen.has_p2p else max(seen.retired, status.completed)
    return [
        place
        for place in seen.waiting
        if operations[place].is_p2p or not 0 < operations[place].sequence <= completed
    ]


def _window(many: int, oldest: int) -> tuple[int, int]:
    end = many if oldest < 0 else min(many, max(oldest + ORDER_AFTER + 1, ORDER_KEPT))
    return max(0, end - ORDER_KEPT), end


def _group(
    name: str,
    seen: _Seen,
    stalled: Sequence[int],
    operations: Sequence[Operation],
    statuses: Mapping[int, GroupStatus],
    known: Group | None,
) -> GroupDigest:
    status = statuses.get(seen.group_id)
    last_sequence = operations[seen.collectives[-1]].sequence if seen.collectives else 0
    enqueued, completed = last_sequence, seen.retired
    if seen.has_p2p and not seen.collectives:
        enqueued = -1
    elif status is not None and not seen.has_p2p:
        enqueued, completed = max(enqueued, status.enqueued), max(completed, status.completed)
    keys_from, keys = _keys(seen, stalled, operations)
    last = operations[seen.last]
    return GroupDigest(
        name=name[:NAME_CHARS],
        about=(seen.about or (known.about if known else ""))[:NAME_CHARS],
        backend=seen.backend,
        group_id=seen.group_id,
        members=runs(known.ranks) if known else (),
        enqueued=enqueued,
        completed=completed,
        first=seen.first,
        last_ms=last.created_ns // MS,
        has_p2p=seen.has_p2p,
        waiting=(),
        waits=len(stalled),
        p2p=_peers(operations[place] for place in stalled) if seen.has_p2p else (),
        keys_from=keys_from,
        keys=keys,
        arrivals=_arrivals([operations[place] for place in seen.collectives[-ARRIVALS_KEPT:]]),
        last="",
    )


def _waiting(operation: Operation, place: int, start: int, end: int) -> Waiting:
    other, _ = signature.peer(operation.kind) if operation.is_p2p else (-1, False)
    return Waiting(
        kind=signature.bare(operation.kind),
        signature=signature.words(operation),
        key=signature.key(operation),
        sequence=0 if operation.is_p2p else operation.sequence,
        peer=other,
        since_ms=operation.created_ns // MS,
        position=place - start if start <= place < end else -1,
    )


def _keys(seen: _Seen, stalled: Sequence[int], operations: Sequence[Operation]) -> tuple[int, bytes]:
    """Returns the keys of up to `KEYS_KEPT` consecutive sequence numbers, around the oldest pending one, else
    the last ones.
    """
    places = seen.collectives
    if not places:
        return 0, b""
    last = operations[places[-1]].sequence
    waits = next((operations[place].sequence for place in stalled if not operations[place].is_p2p), last)
    end = min(last, max(waits + KEYS_AFTER, KEYS_KEPT))
    begin = max(1, end - KEYS_KEPT + 1)
    keys = [0] * (end - begin + 1)
    for place in reversed(places):
        sequence = operations[place].sequence
        if sequence < begin:
            break
        if sequence <= end:
            keys[sequence - begin] = signature.key(operations[place])
    return begin, b"".join(key.to_bytes(2, "big") for key in keys)


def _peers(operations: Iterable[Operation]) -> tuple[tuple[int, int, int], ...]:
    counts: dict[int, list[int]] = {}
    for operation in operations:
        if operation.is_p2p:
            other, sends = signature.peer(operation.kind)
            counts.setdefault(other, [0, 0])[0 if sends else 1] += 1
    return tuple(
        (other, sends, receives) for other, (sends, receives) in list(counts.items())[:P2P_PEERS_KEPT]
    )


def _arrivals(operations: Sequence[Operation]) -> bytes:
    times = [operation.created_ns // MS for operation in operations]
    gaps = (
        min(GAP_MS_MAX, max(0, later - earlier)) for earlier, later in zip(times, times[1:], strict=False)
    )
    return b"".join(gap.to_bytes(2, "big") for gap in gaps)


def _order(operations: Sequence[Operation], slots: Mapping[str, int]) -> list[bytes]:
    return [
        bytes((slots.get(operation.group, 255),)) + signature.key(operation).to_bytes(2, "big")
        for operation in operations
    ]


def _longest_gap_ms(operations: Sequence[Operation]) -> int:
    times = [operation.created_ns for operation in operations]
    return max((later - earlier for earlier, later in zip(times, times[1:], strict=False)), default=0) // MS


def _idle(
    known: Mapping[str, Group], seen: Mapping[str, _Seen], record: FlightRecord, room: int
) -> tuple[GroupDigest, ...]:
    """Returns the groups of this rank without operations in the ring buffer; their counters may still be in
    `unnamed`.
    """
    unseen = [
        group
        for name, group in known.items()
        if name not in seen and group.ranks and len(group.ranks) > 1 and record.rank in group.ranks
    ]
    return tuple(
        GroupDigest(
            name=group.name[:NAME_CHARS],
            about=group.about[:NAME_CHARS],
            backend=group.backend,
            group_id=-1,
            members=runs(group.ranks),
            enqueued=0,
            completed=0,
            first=0,
            last_ms=0,
            has_p2p=False,
            waiting=(),
            waits=0,
            p2p=(),
            keys_from=0,
            keys=b"",
            arrivals=b"",
            last="",
        )
        for group in unseen[: max(0, room)]
    )

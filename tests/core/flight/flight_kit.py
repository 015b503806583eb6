"""A small model of ranks that run collectives, which leaves flight records when it stands still. Pure, no dice.

A rank's program enqueues operations; each rank has one device queue, worked off in order; an operation ends when all
its members have it at the head of their queues and agree on it. On gloo every operation is waited for at once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from holdfast.core.flight.digest import digest
from holdfast.model.flight.digests import Digest, RankLife
from holdfast.model.flight.records import FlightRecord, Group, GroupStatus, Operation

RUN_AHEAD = 12  # operations a CPU may be ahead of its device
MS = 1_000_000
START_NS = 1_790_000_000 * 1_000 * MS


@dataclass(frozen=True)
class Call:
    """One call in a program. `peer`: rank of the job, for send and recv."""

    group: str
    kind: str = "all_reduce"
    size: int = 1000
    dtype: str = "Float"
    peer: int = -1
    is_sync: bool = False

    @property
    def is_p2p(self) -> bool:
        return self.kind in ("send", "recv")


@dataclass
class Issued:
    call: Call
    sequence: int
    p2p_sequence: int
    at_ns: int
    is_done: bool = False


@dataclass
class Rank:
    rank: int
    program: deque[Call]
    groups: dict[str, tuple[int, ...]]  # those it belongs to, in the order in which it made them
    issued: list[Issued] = field(default_factory=list)
    queue: deque[Issued] = field(default_factory=deque)
    sequences: dict[str, int] = field(default_factory=dict)
    p2p: dict[str, int] = field(default_factory=dict)
    at_ns: int = START_NS
    device_stops_at: int | None = None  # place in `issued`: this operation never ends here
    stops_at: int | None = None  # calls after which the CPU does nothing more


class Job:
    """`groups`: members by name. `programs`: what each rank calls."""

    def __init__(
        self, groups: dict[str, tuple[int, ...]], programs: Sequence[Sequence[Call]], *, backend: str = "nccl"
    ) -> None:
        self.backend = backend
        self.groups = groups
        self.ranks = [
            Rank(rank, deque(program), {name: members for name, members in groups.items() if rank in members})
            for rank, program in enumerate(programs)
        ]

    def run(self) -> "Job":
        """Until nothing moves."""
        moved = True
        while moved:
            moved = False
            for rank in self.ranks:
                while self._enqueue(rank):
                    moved = True
            for rank in self.ranks:
                while self._end(rank):
                    moved = True
        return self

    def _enqueue(self, rank: Rank) -> bool:
        if not rank.program or (rank.stops_at is not None and len(rank.issued) >= rank.stops_at):
            return False
        last = rank.issued[-1] if rank.issued else None
        waits = self.backend == "gloo" or (last is not None and last.call.is_sync)
        if (waits and last is not None and not last.is_done) or len(rank.queue) >= RUN_AHEAD:
            return False
        call = rank.program.popleft()
        counts = rank.p2p if call.is_p2p else rank.sequences
        counts[call.group] = counts.get(call.group, 0) + 1
        rank.at_ns += MS
        issued = Issued(call, rank.sequences.get(call.group, 0), rank.p2p.get(call.group, 0), rank.at_ns)
        rank.issued.append(issued)
        rank.queue.append(issued)
        return True

    def _end(self, rank: Rank) -> bool:
        if not rank.queue:
            return False
        head = rank.queue[0]
        members = (rank.rank, head.call.peer) if head.call.is_p2p else self.groups[head.call.group]
        heads = []
        for member in members:
            other = self.ranks[member]
            if not other.queue or not self._fits(rank.rank, head, member, other.queue[0]):
                return False
            heads.append((other, other.queue[0]))
        now_ns = max(other.at_ns for other, _ in heads)
        for other, issued in heads:
            place = other.device_stops_at
            if place is not None and len(other.issued) > place and issued is other.issued[place]:
                continue
            issued.is_done = True
            other.queue.popleft()
            other.at_ns = (
                max(other.at_ns, now_ns) if self.backend == "gloo" or issued.call.is_sync else other.at_ns
            )
        return head.is_done

    def _fits(self, rank: int, head: Issued, member: int, other: Issued) -> bool:
        if head is other:
            return True
        if head.call.is_p2p:
            kinds = {head.call.kind, other.call.kind}
            return (
                other.call.group == head.call.group and kinds == {"send", "recv"} and other.call.peer == rank
            )
        same = replace(head.call, is_sync=False) == replace(other.call, is_sync=False)
        return same and head.sequence == other.sequence

    # --- what is left behind

    def record(
        self, rank: int, *, ring: int = 2000, active_only: bool = False, has_groups: bool = True
    ) -> FlightRecord:
        one = self.ranks[rank]
        ids = {name: place for place, name in enumerate(one.groups)}
        operations = [self._operation(one, issued, ids, at) for at, issued in enumerate(one.issued)]
        if self.backend == "gloo":
            operations = [operation for operation in operations if not operation.is_p2p]
        kept = [operation for operation in operations[-ring:] if not (active_only and operation.retired)]
        groups = {
            name: Group(name=name, about=about(name), ranks=members) for name, members in one.groups.items()
        }
        return FlightRecord(
            rank=rank,
            version="2.10",
            groups=groups if has_groups else {},
            status=tuple(self._status(one, name, ids[name]) for name in one.groups if name in one.sequences),
            operations=tuple(kept),
            is_wrapped=len(kept) < len(operations),
        )

    def digests(self, without: Sequence[int] = (), **options: object) -> list[Digest]:
        return [
            digest(self.record(rank.rank, **options))  # type: ignore[arg-type]
            for rank in self.ranks
            if rank.rank not in without
        ]

    def lives(self) -> dict[int, RankLife]:
        """Their stacks: inside the call they wait in, else in a line of the program. A send on gloo shows only here."""
        return {rank.rank: RankLife(frames=_frames(rank)) for rank in self.ranks}

    def _operation(self, rank: Rank, issued: Issued, ids: dict[str, int], at: int) -> Operation:
        call = issued.call
        kind = call.kind
        if call.is_p2p:
            members = self.groups[call.group]
            arrow = "->" if kind == "send" else "<-"
            kind = f"{kind} {members.index(rank.rank)}{arrow}{members.index(call.peer)}"
        return Operation(
            group=call.group,
            group_about=about(call.group),
            group_id=ids[call.group],
            sequence=issued.sequence,
            p2p_sequence=issued.p2p_sequence,
            record_id=at,
            kind=kind,
            backend=self.backend,
            is_p2p=call.is_p2p,
            input_sizes=((call.size,),),
            input_types=(call.dtype,),
            retired=issued.is_done,
            created_ns=issued.at_ns,
        )

    def _status(self, rank: Rank, name: str, group_id: int) -> GroupStatus:
        done = [
            one.sequence
            for one in rank.issued
            if one.is_done and one.call.group == name and not one.call.is_p2p
        ]
        return GroupStatus(group_id, rank.sequences[name], -1, max(done, default=0))


def _frames(rank: Rank) -> tuple[str, ...]:
    last = rank.issued[-1] if rank.issued else None
    if last is None or last.is_done:
        return ("/data/train.py:88 work", "/data/train.py:120 <module>")
    wait = f"/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252 {last.call.kind}"
    return (wait, "/data/train.py:40 step", "/data/train.py:120 <module>")


def about(name: str) -> str:
    return "default_pg" if name == "world" else name.rstrip("0123456789").upper() + "_GROUP"


# --- layouts


@dataclass(frozen=True)
class Layout:
    tensor: int
    pipeline: int
    data: int

    @property
    def world(self) -> int:
        return self.tensor * self.pipeline * self.data

    def place(self, rank: int) -> tuple[int, int, int]:
        return rank % self.tensor, rank // self.tensor // self.data, rank // self.tensor % self.data

    def rank(self, tensor: int, pipeline: int, data: int) -> int:
        return tensor + self.tensor * (data + self.data * pipeline)

    def groups(self) -> dict[str, tuple[int, ...]]:
        """In the order in which programs make them: one kind after the other, so local ids agree between ranks."""
        found: dict[str, list[int]] = {"world": list(range(self.world))}
        for kind in ("dp", "tp", "pp"):
            for rank in range(self.world):
                found.setdefault(self.names(rank)[kind], []).append(rank)
        return {name: tuple(members) for name, members in found.items()}

    def names(self, rank: int) -> dict[str, str]:
        tensor, pipeline, data = self.place(rank)
        return {
            "dp": f"dp{tensor + self.tensor * pipeline}",
            "tp": f"tp{data + self.data * pipeline}",
            "pp": f"pp{tensor + self.tensor * data}",
        }


def step(layout: Layout, rank: int, *, layers: int = 2) -> list[Call]:
    """Forward, backward, gradients over data parallel ranks, norm over all. One micro batch."""
    tensor, pipeline, data = layout.place(rank)
    names = layout.names(rank)
    forth = [Call(names["tp"], size=4000 + layer) for layer in range(layers)]
    back = [Call(names["tp"], "reduce_scatter", size=8000 + layer) for layer in range(layers)]
    before, after = [], []
    if pipeline > 0:
        other = layout.rank(tensor, pipeline - 1, data)
        before, after = [Call(names["pp"], "recv", peer=other)], [Call(names["pp"], "send", peer=other)]
    middle = []
    if pipeline < layout.pipeline - 1:
        other = layout.rank(tensor, pipeline + 1, data)
        middle = [Call(names["pp"], "send", peer=other), Call(names["pp"], "recv", peer=other)]
    ends = [Call(names["dp"], size=90_000), Call("world", size=1, is_sync=True)]
    return [*before, *forth, *middle, *back, *after, *ends]


def training(
    layout: Layout,
    steps: int = 6,
    *,
    backend: str = "nccl",
    change: Callable[[int, int, list[Call]], list[Call]] = lambda rank, step, calls: calls,
) -> Job:
    """`change(rank, step, calls)` gives what a rank calls in a step instead."""
    programs = [
        [call for at in range(steps) for call in change(rank, at, step(layout, rank))]
        for rank in range(layout.world)
    ]
    return Job(layout.groups(), programs, backend=backend)

"""Defines the digest of one rank's collectives, small enough to send, and the result of comparing digests."""

from typing import Literal

from msgspec import Struct

from holdfast.model.flight.records import GroupStatus
from holdfast.model.signatures import Words

Members = tuple[tuple[int, int, int], ...]  # runs of ranks: first, how many, stride


class Waiting(Struct, frozen=True, array_like=True):
    """An operation that was enqueued and has not ended."""

    kind: str  # "all_reduce", "send", "recv"
    signature: str  # in words: "all_reduce of [4000] Float"
    key: int  # what must be alike on all ranks, as a hash
    sequence: int  # of collectives; 0 for point to point
    peer: int = -1  # point to point: the other side, as a rank of its group; -1: none, or not known
    since_ms: int = 0  # wall clock of its node
    position: int = 0  # place in `Digest.order`; -1: not in it


class GroupDigest(Struct, frozen=True, array_like=True):
    """One rank's progress in one process group. Sequence numbers count from 1; 0: none yet."""

    name: str
    about: str
    backend: str
    group_id: int  # local to the process
    members: Members  # () where they are not known
    enqueued: int  # of its collectives; -1: not known
    completed: int
    first: int  # the oldest sequence still in the ring; 0: none is
    last_ms: int  # when it enqueued the last one, wall clock of its node; 0: not known
    has_p2p: bool  # sends and receives go through it: its counters may mix both
    waiting: tuple[Waiting, ...]  # only in the group named by `Digest.oldest`: what it has waited in longest
    waits: int  # how many there are
    p2p: tuple[tuple[int, int, int], ...]  # per peer: sends and receives that have not ended
    keys_from: int  # the sequence of the first key
    keys: bytes  # two bytes a sequence, what must be alike on all ranks; 0: not known
    arrivals: bytes  # two bytes each: ms from one enqueue to the next, up to the last
    last: str  # signature of the last operation, in words; only in the group named by `Digest.newest`


class Digest(Struct, frozen=True, array_like=True):
    """One rank. `order`: three bytes an operation over all groups: the group's place in `groups`, then its key."""

    rank: int
    version: str
    groups: tuple[GroupDigest, ...]
    unnamed: tuple[GroupStatus, ...]  # counters of groups of which no operation is in the ring
    oldest: int  # place in `groups` of the operation that has waited longest; -1: nothing waits
    newest: int  # place in `groups` of the operation enqueued last; -1: none
    order: bytes
    taken_ms: int  # when the record was read, wall clock of its node; 0: not known
    last_ms: int  # when it enqueued anything last
    longest_gap_ms: int  # between two enqueues in the ring
    operations: int
    is_wrapped: bool
    notes: tuple[str, ...]


RankClass = Literal[
    "dead", "stopped", "blocked", "waiting_outside", "writing", "compiling", "running", "comm_wait", "unknown"
]  # blocked: in state D; waiting_outside: waits for something that is no collective


class RankLife(Struct, frozen=True, kw_only=True):
    """Other knowledge of a rank: its process, its stack, its last error."""

    rank_class: RankClass = "unknown"
    exit_code: int | None = None  # -N: killed by signal N
    wait_channel: str = ""
    frames: tuple[str, ...] = ()  # innermost first, "path/of/file.py:88 function"
    error: str = ""
    answered: bool | None = None  # a signal that asks for its stack; None: was not asked


# missing: never enqueued it; lag: enqueued, but its device stands still; network_or_device: all arrived, none ended;
# records_missing: those who could tell left no record.
LocatedKind = Literal[
    "missing",
    "mismatch",
    "order",
    "uneven",
    "lag",
    "network_or_device",
    "stopped",
    "killed",
    "dataloader",
    "straggler",
    "records_missing",
]


class Located(Struct, frozen=True, kw_only=True):
    """Which ranks block which others, in which operation, and why. `culprits` is empty if no rank differs from the
    others.
    """

    kind: LocatedKind
    category: str
    culprits: tuple[int, ...]
    waiting: tuple[int, ...] = ()
    group: str = ""
    about: str = ""
    operation: str = ""
    sequence: int = 0
    expected: str = ""
    got: str = ""
    confidence: float = 0.0  # 0..1
    why: Words = Words(en="", zh="")

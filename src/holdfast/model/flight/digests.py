"""Defines the digest of one rank's collectives, small enough to send, and the result of comparing digests."""

from typing import Literal

from msgspec import Struct

from holdfast.model.flight.records import GroupStatus
from holdfast.model.signatures import Words

Members = tuple[tuple[int, int, int], ...]  # runs of ranks: first, how many, stride


class Waiting(Struct, frozen=True, array_like=True):
    """A collective operation that a rank has enqueued and that has not completed."""

    kind: str  # "all_reduce", "send", "recv"
    signature: str  # as text: "all_reduce of [4000] Float"
    key: int  # hash of everything that must be equal on all ranks
    sequence: int  # number of the collective; 0 for point to point
    peer: int = -1  # point to point: the other side, as a rank of its group; -1: none, or not known
    since_ms: int = 0  # wall clock of its node
    position: int = 0  # index in `Digest.order`; -1: not in it


class GroupDigest(Struct, frozen=True, array_like=True):
    """One rank's progress in one process group. Sequence numbers count from 1; 0: none yet."""

    name: str
    about: str
    backend: str
    group_id: int  # local to the process
    members: Members  # () where they are not known
    enqueued: int  # of its collectives; -1: not known
    completed: int
    first: int  # the oldest sequence number still in the ring buffer; 0: none
    last_ms: int  # when it enqueued the last one, wall clock of its node; 0: not known
    has_p2p: bool  # sends and receives go through it: its counters may mix both
    waiting: tuple[Waiting, ...]  # the longest pending operation; only in the group at `Digest.oldest`
    waits: int  # number of pending operations
    p2p: tuple[tuple[int, int, int], ...]  # per peer: pending sends and receives
    keys_from: int  # the sequence number of the first key
    keys: bytes  # two bytes per sequence number: hash of what must be equal on all ranks; 0: not known
    arrivals: bytes  # two bytes each: ms from one enqueue to the next, up to the last
    last: str  # signature of the last operation, as text; only in the group at `Digest.newest`


class Digest(Struct, frozen=True, array_like=True):
    """The digest of one rank's flight record.

    `order`: three bytes per operation over all groups: the group's index in `groups`, then the operation's
    key.
    """

    rank: int
    version: str
    groups: tuple[GroupDigest, ...]
    unnamed: tuple[GroupStatus, ...]  # counters of groups without an operation in the ring buffer
    oldest: int  # index in `groups` of the longest pending operation; -1: none is pending
    newest: int  # index in `groups` of the operation enqueued last; -1: none
    order: bytes
    taken_ms: int  # when the record was read, wall clock of its node; 0: not known
    last_ms: int  # when it last enqueued an operation
    longest_gap_ms: int  # between two enqueues in the ring buffer
    operations: int
    is_wrapped: bool
    notes: tuple[str, ...]


RankClass = Literal[
    "dead", "stopped", "blocked", "waiting_outside", "writing", "compiling", "running", "comm_wait", "unknown"
]  # blocked: in state D; waiting_outside: waits for something that is no collective


class RankLife(Struct, frozen=True, kw_only=True):
    """The state of a rank apart from its flight record: its process, its stack, its last error."""

    rank_class: RankClass = "unknown"
    exit_code: int | None = None  # -N: killed by signal N
    wait_channel: str = ""
    frames: tuple[str, ...] = ()  # innermost first, "path/of/file.py:88 function"
    error: str = ""
    answered: bool | None = None  # whether it answered the signal for a stack dump; None: no signal was sent


# missing: never enqueued it; lag: enqueued, but its device does not progress; network_or_device: all arrived,
# none completed; records_missing: the ranks that could show it left no record.
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
    """The ranks that block others, the operation, and the reason.

    `culprits`: empty if no rank differs from the others.
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

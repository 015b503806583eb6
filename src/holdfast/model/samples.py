"""Defines the samples of one rank, taken once a second, and the result of the hang detector."""

from typing import Literal

from msgspec import Struct

from holdfast.model.flight.records import GroupStatus

GONE_STATES = frozenset("ZX")  # the process has ended: a zombie, or no longer there


class RankSample(Struct, frozen=True, kw_only=True, gc=False):
    """The state of one rank at one moment.

    Counters only grow while the process lives; None if they could not be read.

    `at_s`: on the job's clock. Times in seconds, sizes in bytes. If ranks share one log file, `log_bytes` is
    0 for all of them but one, which has the size of that file.
    """

    at_s: float
    rank: int
    pid: int
    state: str  # one letter of proc(5): R S D I T t Z; X: the process is gone; ?: it may not be read
    thread: int = (
        0  # the thread that runs the script, if not the main thread: the values for "main" are then its own
    )
    main_cpu_s: float | None = None  # main thread, user + system
    tree_cpu_s: float | None = None  # the process and all below it, every thread
    io_bytes: int | None = None  # rchar + wchar of /proc/PID/io, over the process and all below it
    disk_bytes: int | None = None  # read_bytes + write_bytes, likewise
    # wchar, likewise: handed to write(), by way of pipes too; what is sent on sockets does not count
    write_bytes: int | None = None
    disk_write_bytes: int | None = None  # write_bytes of /proc/PID/io, likewise: pages of files made dirty
    wait_channel: str = ""  # /proc/PID/wchan of the main thread; "" when unknown or running
    traced: bool | None = None  # a debugger or tracer is attached; None: not known
    # Child processes and their descendants; if there are many, some were read seconds ago.
    children: int = 0  # that have not ended
    running_children: int = 0  # in state R
    blocked_children: int = 0  # in state D
    child_names: tuple[str, ...] = ()  # distinct, running ones first, then the newest, at most 4
    child_channels: tuple[str, ...] = ()  # distinct wait channels, the most frequent first, at most 4
    log_bytes: int = 0  # size of the rank's own output
    step: int | None = None  # the last step in its log
    exit_code: int | None = None  # once it is known; -N: killed by signal N
    groups: tuple[GroupStatus, ...] | None = None  # its process groups, reported by the shim; None: not known


class Utilisation(Struct, frozen=True, kw_only=True):
    """The utilisation of one device at one moment."""

    at_s: float
    device: str
    percent: float


class StackTrend(Struct, frozen=True, kw_only=True, gc=False):
    """The result of repeated stack samples of one rank's main thread.

    Stacks are distinct if their functions differ.
    """

    rank: int
    from_s: float  # the job's clock, at the first and at the last of them
    to_s: float
    samples: int
    distinct: int
    # Position within its innermost Python frame: the interpreter itself, a call into C, the kernel.
    inside: Literal["interpreter", "library", "kernel", "unknown"] = "unknown"


class Stack(Struct, frozen=True, kw_only=True):
    """The Python stack of one rank's main thread, innermost frame first."""

    rank: int
    frames: tuple[str, ...]  # "path/of/file.py:88 function"


# stopped: a rank in state T; blocked-io: in state D; quiet: no rank runs; spinning: a few run, the others wait;
# silent: something runs, but no step, line or byte; exit-hang: some ranks ended, the others do not;
# left-early: others wait in a collective for ranks that have ended.
HangKind = Literal["stopped", "blocked-io", "quiet", "spinning", "silent", "exit-hang", "left-early"]


class Hang(Struct, frozen=True, kw_only=True):
    """A confirmed hang. `culprits`: empty if no rank differs from the others."""

    kind: HangKind
    culprits: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    since_s: float  # time of the last progress, on the job's clock
    why: str
    category: str = ""  # of the taxonomy, if more is known than the kind
    confidence: float  # 0..1
    seen: tuple[RankSample, ...] = ()

"""What is read about one rank, once a second, and what a detector says of it."""

from msgspec import Struct


class RankSample(Struct, frozen=True, kw_only=True):
    """One rank at one moment. Counters only grow while the process lives; None: could not be read.

    `at_s`: the job's clock, seconds. Times in seconds, sizes in bytes.
    """

    at_s: float
    rank: int
    pid: int
    state: str  # one letter of proc(5): R S D T t Z X; "?" when the process is gone or unreadable
    main_cpu_s: float | None = None  # main thread, user + system
    tree_cpu_s: float | None = None  # the process and all below it, every thread
    io_bytes: int | None = None  # rchar + wchar of /proc/PID/io, over the process and all below it
    disk_bytes: int | None = None  # read_bytes + write_bytes, likewise
    wait_channel: str = ""  # /proc/PID/wchan of the main thread; "" when unknown or running
    log_bytes: int = 0  # size of what the rank has written to its own output; 0 where ranks share one file
    step: int | None = None  # the last step its log named


class Stack(Struct, frozen=True, kw_only=True):
    """The Python stack of one rank's main thread, innermost frame first."""

    rank: int
    frames: tuple[str, ...]  # "file.py:88 function"

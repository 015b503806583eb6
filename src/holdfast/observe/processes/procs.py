"""Reads a rank and its child processes from /proc, once a second and in less than a millisecond.

Never raises: a process may end, change its owner or be hidden between two reads. Unreadable values are None;
an ended process has state "X", an unreadable one "?". Opens no file that can block on the memory lock of a
stuck process (cmdline, environ, maps, smaps): stat, io, wchan, status and children are readable in state D as
well.

source: proc(5); measured on Linux 6.18 by bench/observe/sampling.py
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from types import TracebackType
from typing import NamedTuple, Self

from holdfast.model.samples import RankSample

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READ_BYTES_MAX = 4096  # stat and io are under 512 bytes; a children list is cut here, at about 600 processes
TRACER = b"\nTracerPid:\t"  # among the first 200 bytes of status
WALK_EVERY = 10  # the whole tree, by every thread, is listed in one sample of this many
DESCENDANTS_MAX = 256  # of one rank; a data loader has 4-64, a compiler pool up to 32
DESCENDANTS_READ_MAX = 16  # read in one sample, in turn: 64 loader workers cost as much as 16
NAMES_MAX = 4  # of children and of their wait channels, in one sample
ENDED = frozenset("ZXx")
WHOLE = frozenset("TtZXx")  # states that a process has as a whole


class Usage(NamedTuple):
    """CPU time and bytes transferred by a process so far, including children that have ended."""

    cpu_s: float
    io_bytes: int
    disk_bytes: int
    write_bytes: int
    disk_write_bytes: int


class Transferred(NamedTuple):
    """Sums of the byte counters in /proc/PID/io."""

    io_bytes: int  # rchar + wchar
    disk_bytes: int  # read_bytes + write_bytes
    write_bytes: int  # wchar
    disk_write_bytes: int  # write_bytes


NOTHING = Usage(0.0, 0, 0, 0, 0)
NO_BYTES = Transferred(0, 0, 0, 0)


class ProcessStat(NamedTuple):
    """Selected fields of /proc/PID/stat. Times in seconds; `started` in clock ticks since boot."""

    name: str  # at most 15 characters: what the program calls itself, else its file
    state: str
    own_cpu_s: float
    reaped_cpu_s: float  # of children that have ended and been waited for
    started: int


class RankReader:
    """Reader of one rank's process tree that keeps its files of /proc open between samples.

    An open file of /proc belongs to one process for good: when the pid is used again, reads fail.
    """

    def __init__(self, pid: int, rank: int) -> None:
        self.pid, self.rank = pid, rank
        here = f"/proc/{pid}"
        self._stat = _open(f"{here}/stat")
        self._main = _open(f"{here}/task/{pid}/stat")
        self._io = _open(f"{here}/io")
        self._wait_channel = _open(f"{here}/wchan")
        self._thread = 0  # another one than the main thread, which is read in its place
        self._status = _open(f"{here}/status")
        self._children = _open(f"{here}/task/{pid}/children")
        self._gone = self._stat is None and not is_there(pid)
        self.leave_out: Set[int] = (
            frozenset()
        )  # processes below it, and what they started, that are others' to read
        self._samples = 0
        self._below: dict[int, _Descendant] = {}
        self._seen: Usage | None = None  # the sum over the tree in the sample before
        self._used = NOTHING

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for fd in (self._stat, self._main, self._io, self._wait_channel, self._status, self._children):
            if fd is not None:
                os.close(fd)
        self._stat = self._main = self._io = self._wait_channel = self._status = self._children = None

    def sample(
        self, at_s: float, *, log_bytes: int = 0, step: int | None = None, thread: int = 0
    ) -> RankSample:
        """Returns the current sample of the rank.

        `log_bytes` and `step` come from the follower of its log.
        """
        if thread != self._thread:
            self._follow(thread)
        stat = parse_stat(_read(self._stat))
        if stat is None:
            state = "X" if self._gone or self._has_gone() else "?"
            return RankSample(
                at_s=at_s, rank=self.rank, pid=self.pid, state=state, log_bytes=log_bytes, step=step
            )
        main = parse_stat(_read(self._main))
        if main is None and self._thread:  # that thread has ended
            self._follow(0)
            main = parse_stat(_read(self._main))
        io = parse_io(_read(self._io))
        self._add_up(stat, io)
        below = [process for process in self._below.values() if process.state not in ENDED]
        return RankSample(
            at_s=at_s,
            rank=self.rank,
            pid=self.pid,
            state=main.state if main and stat.state not in WHOLE else stat.state,
            thread=self._thread,
            main_cpu_s=main.own_cpu_s if main else None,
            tree_cpu_s=self._used.cpu_s,
            io_bytes=self._used.io_bytes if io else None,
            disk_bytes=self._used.disk_bytes if io else None,
            write_bytes=self._used.write_bytes if io else None,
            disk_write_bytes=self._used.disk_write_bytes if io else None,
            wait_channel=parse_wait_channel(_read(self._wait_channel)),
            traced=True if stat.state == "t" else parse_traced(_read(self._status)),
            children=len(below),
            running_children=sum(process.state == "R" for process in below),
            blocked_children=sum(process.state == "D" for process in below),
            child_names=_names(below),
            child_channels=_channels(below),
            log_bytes=log_bytes,
            step=step,
        )

    def _follow(self, thread: int) -> None:
        """Reads this thread in place of the main one from now on; 0 means the main one."""
        for fd in (self._main, self._wait_channel):
            if fd is not None:
                os.close(fd)
        here = f"/proc/{self.pid}/task/{thread or self.pid}"
        self._main, self._wait_channel = _open(f"{here}/stat"), _open(f"{here}/wchan")
        self._thread = thread

    def _has_gone(self) -> bool:
        """Returns True if the process has ended: a file of /proc that was open fails.

        One never opened proves nothing.
        """
        self._gone = self._stat is not None or not is_there(self.pid)
        return self._gone

    def _add_up(self, stat: ProcessStat, io: Transferred | None) -> None:
        """Adds what the process tree used since the previous sample.

        The kernel adds a child that ends to its parent's counters when the parent waits for it, so the sum
        over the tree keeps it. If nobody waits for it (SIGCHLD ignored, adopted by init), the sum falls; a
        fall counts as zero, so that the reported counters only grow.
        """
        self._list_descendants()
        here = Usage(stat.own_cpu_s + stat.reaped_cpu_s, *(io or NO_BYTES))
        seen = _sum([here, *self._below_used()])
        grown = (max(0, now - before) for now, before in zip(seen, self._seen or NOTHING, strict=True))
        self._used = _sum([self._used, Usage._make(grown)])
        self._seen = seen

    def _list_descendants(self) -> None:
        """Updates the list of descendants: children of main threads at each sample, those of other threads
        every few samples.
        """
        if self._samples % WALK_EVERY == 0:
            found = set(tree_below(self.pid, self.leave_out))
        else:
            found = {*self._below, *parse_children(_read(self._children))}
            found.update(pid for process in self._below.values() for pid in process.children)
            found -= self.leave_out
        self._samples += 1
        for pid in self._below.keys() - found:
            del self._below[pid]
        for pid in sorted(found - self._below.keys())[: DESCENDANTS_MAX - len(self._below)]:
            self._below[pid] = _Descendant(pid)

    def _below_used(self) -> list[Usage]:
        pids = list(self._below)
        first = self._samples * DESCENDANTS_READ_MAX % len(pids) if len(pids) > DESCENDANTS_READ_MAX else 0
        for pid in (pids[first:] + pids[:first])[:DESCENDANTS_READ_MAX]:
            if not self._below[pid].read():
                del self._below[pid]
        return [process.used for process in self._below.values()]


class _Descendant:
    """A descendant process of a rank.

    Its files are not kept open, because many loader workers would exhaust the limit.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.used = NOTHING
        self.name = ""
        self.state = "?"
        self.started: int | None = None
        self.wait_channel = ""
        self.children: list[int] = []

    def read(self) -> bool:
        """Reads the process. Returns False if it has ended or its pid belongs to another process."""
        stat = parse_stat(_read_once(f"/proc/{self.pid}/stat"))
        if stat is None or self.started not in (None, stat.started):
            return False
        here = f"/proc/{self.pid}"
        self.started, self.state, self.name = stat.started, stat.state, stat.name
        io = parse_io(_read_once(f"{here}/io")) or Transferred._make(self.used[1:])
        self.used = Usage(stat.own_cpu_s + stat.reaped_cpu_s, *io)
        waits = stat.state in "SD"
        self.wait_channel = parse_wait_channel(_read_once(f"{here}/wchan")) if waits else ""
        self.children = parse_children(_read_once(f"{here}/task/{self.pid}/children"))
        return True


def _sum(parts: Iterable[Usage]) -> Usage:
    return Usage._make(map(sum, zip(*parts, strict=True)))


def _names(processes: Iterable[_Descendant]) -> tuple[str, ...]:
    """Returns process names, running ones first, then the youngest first: a compiler before waiting loader
    workers.
    """
    known = [process for process in processes if process.started is not None]
    known.sort(key=lambda process: (process.state != "R", -(process.started or 0)))
    return tuple(dict.fromkeys(process.name for process in known))[:NAMES_MAX]


def _channels(processes: Iterable[_Descendant]) -> tuple[str, ...]:
    counts = Counter(process.wait_channel for process in processes if process.wait_channel)
    return tuple(name for name, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:NAMES_MAX])


def is_there(pid: int) -> bool:
    """Returns True if the process exists, even if /proc hides it (hidepid): a signal is then refused."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def parse_stat(text: bytes) -> ProcessStat | None:
    """Parses /proc/PID/stat into state and times; None for another form.

        8421 (python3 (train)) S 8400 ...

    The name may contain blanks and brackets, so fields are counted from the last bracket: state is field 3,
    utime, stime, cutime and cstime are fields 14-17, starttime is field 22.
    """
    end = text.rfind(b")")
    fields = text[end + 2 :].split()
    if len(fields) < 20:
        return None
    try:
        user, system, reaped_user, reaped_system = (int(field) for field in fields[11:15])
        started = int(fields[19])
    except ValueError:
        return None
    return ProcessStat(
        text[text.find(b"(") + 1 : end].decode("utf-8", "replace"),
        fields[0].decode("ascii", "replace"),
        (user + system) / TICKS_PER_S,
        (reaped_user + reaped_system) / TICKS_PER_S,
        started,
    )


def parse_io(text: bytes) -> Transferred | None:
    """Parses /proc/PID/io and returns sums of its counters; None for another form.

    The kernel fixes the order of the lines: rchar wchar syscr syscw read_bytes write_bytes cancelled.
    """
    values = text.split()[1::2]
    if len(values) < 6:
        return None
    try:
        read, written, _, _, disk_read, disk_written = map(int, values[:6])
    except ValueError:
        return None
    return Transferred(read + written, disk_read + disk_written, written, disk_written)


def parse_traced(status: bytes) -> bool | None:
    """Returns True if `TracerPid:` in /proc/PID/status names a process that traces it; None if there is no
    such line.

    A tracer in an invisible pid namespace is shown as 0.
    """
    at = status.find(TRACER)
    if at < 0:
        return None
    return status[at + len(TRACER) :].split(b"\n", 1)[0].strip() not in (b"0", b"")


def parse_wait_channel(text: bytes) -> str:
    """Parses /proc/PID/wchan and returns the kernel function, such as `futex_wait_queue`; empty if running
    or unknown.
    """
    name = text.strip().decode("ascii", "replace")
    return "" if name == "0" else name


def parse_children(text: bytes) -> list[int]:
    """Parses a list of child pids such as `8430 8431 `.

    Drops the last one of a truncated list, which may be incomplete.
    """
    pids = text.split()
    if len(text) >= READ_BYTES_MAX and not text.endswith(b" "):
        pids = pids[:-1]
    return [int(pid) for pid in pids if pid.isdigit()]


def tree_below(pid: int, leave_out: Set[int] = frozenset()) -> Iterator[int]:
    """Yields the descendants of a process, nearest first, at most DESCENDANTS_MAX, except `leave_out` and
    their descendants.
    """
    waiting, found = [pid], 0
    while waiting:
        for child in _children_of(waiting.pop(0)):
            if found >= DESCENDANTS_MAX:
                return
            if child in leave_out:
                continue
            found += 1
            waiting.append(child)
            yield child


def _children_of(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    children: list[int] = []
    for thread in threads:
        children += parse_children(_read_once(f"/proc/{pid}/task/{thread}/children"))
    return children


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read(fd: int | None) -> bytes:
    """Returns the content of an open file of /proc; empty if it cannot be read."""
    if fd is None:
        return b""
    try:
        return os.pread(fd, READ_BYTES_MAX, 0)
    except OSError:
        return b""


def _read_once(path: str) -> bytes:
    fd = _open(path)
    text = _read(fd)
    if fd is not None:
        os.close(fd)
    return text

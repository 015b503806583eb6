"""Reads what one rank does from /proc, once a second and for less than half a millisecond.

It never raises for what the world does: a process may end, change its owner or be hidden between
two reads. What could not be read is None; a process that has ended has state "X"; one that may not be
read has state "?". It opens no file that can block on the memory lock of a stuck process
(cmdline, environ, maps, smaps): stat, io, wchan and children answer in state D as well.

source: proc(5); measured on Linux 6.18 by bench/sampling.py
"""

import os
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from holdfast.model.samples import RankSample

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READ_BYTES_MAX = 4096  # stat and io are under 512 bytes; a children list is cut here, at about 600 processes
WALK_EVERY = 10  # the whole tree, by every thread, is listed in one sample of this many
DESCENDANTS_MAX = 256  # of one rank; a data loader has 4-64, a compiler pool up to 32
DESCENDANTS_READ_MAX = 16  # read in one sample, in turn: 64 loader workers cost as much as 16


class Usage(NamedTuple):
    """What one process has used so far, with its children that have been waited for."""

    cpu_s: float
    io_bytes: int
    disk_bytes: int


NOTHING = Usage(0.0, 0, 0)


class ProcessStat(NamedTuple):
    """The fields of /proc/PID/stat that are of use here. Seconds, and ticks since boot for `started`."""

    state: str
    own_cpu_s: float
    reaped_cpu_s: float  # of children that have ended and been waited for
    started: int


class RankReader:
    """Reads one rank again and again, its files kept open.

    An open file of /proc belongs to one process for good: when its pid is used again by another, reads fail.
    """

    def __init__(self, pid: int, rank: int) -> None:
        self.pid, self.rank = pid, rank
        here = f"/proc/{pid}"
        self._stat = _open(f"{here}/stat")
        self._main = _open(f"{here}/task/{pid}/stat")
        self._io = _open(f"{here}/io")
        self._wait_channel = _open(f"{here}/wchan")
        self._children = _open(f"{here}/task/{pid}/children")
        self._gone = self._stat is None and not os.path.exists(here)
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
        for fd in (self._stat, self._main, self._io, self._wait_channel, self._children):
            if fd is not None:
                os.close(fd)
        self._stat = self._main = self._io = self._wait_channel = self._children = None

    def sample(self, at_s: float, *, log_bytes: int = 0, step: int | None = None) -> RankSample:
        """The rank now. `log_bytes` and `step` are what the follower of its log knows."""
        stat = parse_stat(_read(self._stat))
        if stat is None:
            state = "X" if self._gone or self._has_gone() else "?"
            return RankSample(
                at_s=at_s, rank=self.rank, pid=self.pid, state=state, log_bytes=log_bytes, step=step
            )
        main = parse_stat(_read(self._main))
        io = parse_io(_read(self._io))
        self._add_up(stat, io)
        return RankSample(
            at_s=at_s,
            rank=self.rank,
            pid=self.pid,
            state=stat.state,
            main_cpu_s=main.own_cpu_s if main else None,
            tree_cpu_s=self._used.cpu_s,
            io_bytes=self._used.io_bytes if io else None,
            disk_bytes=self._used.disk_bytes if io else None,
            blocked_children=sum(process.state == "D" for process in self._below.values()),
            wait_channel=parse_wait_channel(_read(self._wait_channel)),
            log_bytes=log_bytes,
            step=step,
        )

    def _has_gone(self) -> bool:
        """A file of /proc that was open and now fails means that the process has ended; one never opened does not."""
        self._gone = self._stat is not None or not os.path.exists(f"/proc/{self.pid}")
        return self._gone

    def _add_up(self, stat: ProcessStat, io: tuple[int, int] | None) -> None:
        """Adds what the tree used since the sample before.

        A child that ends is added to its parent's counters by the kernel when it is waited for, so the sum over
        the tree keeps it. Where nobody waits for it (SIGCHLD ignored, adopted by init) the sum falls: that
        counts as nothing, so that the counters given out only grow.
        """
        self._list_descendants()
        io_bytes, disk_bytes = io or (0, 0)
        parts = [Usage(stat.own_cpu_s + stat.reaped_cpu_s, io_bytes, disk_bytes), *self._below_used()]
        seen = Usage(
            sum(part.cpu_s for part in parts),
            sum(part.io_bytes for part in parts),
            sum(part.disk_bytes for part in parts),
        )
        before = self._seen or NOTHING
        self._used = Usage(
            self._used.cpu_s + max(0.0, seen.cpu_s - before.cpu_s),
            self._used.io_bytes + max(0, seen.io_bytes - before.io_bytes),
            self._used.disk_bytes + max(0, seen.disk_bytes - before.disk_bytes),
        )
        self._seen = seen

    def _list_descendants(self) -> None:
        """New children of the main thread at once; those of other threads and their own children by and by."""
        if self._samples % WALK_EVERY == 0:
            found = set(_tree_below(self.pid))
        else:
            found = {*self._below, *parse_children(_read(self._children))}
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
    """A process below a rank. Its files are not kept open: many loader workers would use up the agent's files."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.used = NOTHING
        self.state = "?"
        self._started: int | None = None

    def read(self) -> bool:
        """False: it is gone, or its pid is another process's now."""
        stat = parse_stat(_read_once(f"/proc/{self.pid}/stat"))
        if stat is None or self._started not in (None, stat.started):
            return False
        self._started, self.state = stat.started, stat.state
        io_bytes, disk_bytes = parse_io(_read_once(f"/proc/{self.pid}/io")) or self.used[1:]
        self.used = Usage(stat.own_cpu_s + stat.reaped_cpu_s, io_bytes, disk_bytes)
        return True


def parse_stat(text: bytes) -> ProcessStat | None:
    """`8421 (python3 (train)) S 8400 ... ` -> its state and times; None when the text is not of this form.

    The name may hold blanks and brackets, so fields are counted from the last bracket: state is field 3,
    utime, stime, cutime and cstime are fields 14-17, starttime is field 22.
    """
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    try:
        user, system, reaped_user, reaped_system = (int(field) for field in fields[11:15])
        started = int(fields[19])
    except ValueError:
        return None
    return ProcessStat(
        fields[0].decode("ascii", "replace"),
        (user + system) / TICKS_PER_S,
        (reaped_user + reaped_system) / TICKS_PER_S,
        started,
    )


def parse_io(text: bytes) -> tuple[int, int] | None:
    """`rchar: 6976\\nwchar: 0\\n...` -> (rchar + wchar, read_bytes + write_bytes); None when it is not of this form.

    The order of the lines is fixed by the kernel: rchar wchar syscr syscw read_bytes write_bytes cancelled.
    """
    values = text.split()[1::2]
    if len(values) < 6:
        return None
    try:
        return int(values[0]) + int(values[1]), int(values[4]) + int(values[5])
    except ValueError:
        return None


def parse_wait_channel(text: bytes) -> str:
    """`futex_wait_queue` as it is; `0` (running, or not to be told) and nothing: ""."""
    name = text.strip().decode("ascii", "replace")
    return "" if name == "0" else name


def parse_children(text: bytes) -> list[int]:
    """`8430 8431 ` -> pids. The last one is left out where the list was cut, as it may be half a number."""
    pids = text.split()
    if len(text) >= READ_BYTES_MAX and not text.endswith(b" "):
        pids = pids[:-1]
    return [int(pid) for pid in pids if pid.isdigit()]


def _tree_below(pid: int) -> Iterator[int]:
    """Every process below `pid`, children of any thread, at most DESCENDANTS_MAX, nearest first."""
    waiting, found = [pid], 0
    while waiting:
        for child in _children_of(waiting.pop(0)):
            if found >= DESCENDANTS_MAX:
                return
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
    """Nothing when it cannot be read: gone, forbidden, or never opened."""
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

"""Writes and reads the time index of a followed log (which byte was written when), and reads logs in order of
time.

Beside `stdout` lies `stdout.idx` with records of 16 bytes: a time (milliseconds since the Unix epoch) and a
size (bytes), both little-endian u64. At that time, the bytes before that offset had been written. It never
changes a log, and a failure to write an index is only noted. Lines of a log without an index get the time of
the file's last change, marked as inexact.

If a worker's node has another clock than the controller, `clock.json` beside its logs says how far it is
ahead.
"""

import heapq
import os
import re
import struct
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.parsers.log_lines.text import LINE_BYTES_MAX, LineCutter

RECORD = struct.Struct("<QQ")
BLOCK_BYTES = 64 << 10  # read at once of a log or an index; one of each is held for every file being merged
BLOCK_BYTES_MIN = 4 << 10
BLOCKS_BYTES_MAX = 64 << 20  # of all of them: a large job has more than ten thousand logs
SOURCE = re.compile(r"stdout|stderr|rank-(?P<rank>\d{1,9})\.log")
RANK_PREFIX = re.compile(rb"\s*\[(?:rank|default)(\d{1,9})\]:")  # PyTorch's; torchrun's is the local rank
LINE_ENDS = (b"\n", b"\r")
CLOCK_NOTE = "clock.json"
FAR_S = 1e10  # a clock further off than three hundred years is none
GIVEN_UP = b"[output given up when the disk was full] "  # space.py: what was there reads as zeros


class LogLine(Struct, frozen=True):
    """One line of a log, without its line end.

    `at_s`: when it was complete, accurate to the interval of polling.

    `exact` is False if the file was not followed; `at_s` is then the file's last change, an upper bound.
    """

    at_s: float
    attempt: int
    worker: int
    source: str
    rank: int | None
    text: bytes
    exact: bool = True


class ClockNote(Struct, frozen=True):
    """Content of `clock.json`.

    `ahead_s`: the clock that timestamped the logs in this folder, minus the job's clock, in seconds.
    """

    ahead_s: float = 0.0


class IndexWriter:
    """Writer of the time index of one log, for use by one process. Never raises.

    `say`: receives a sentence for each error.
    """

    def __init__(self, log: Path, say: Callable[[str], None]) -> None:
        self._path = index_path(log)
        self._say = say
        self._is_in_trouble = False
        self._fd: int | None = None
        self._end_bytes = 0
        self._last_ms = 0
        self._last_size_bytes = 0
        with suppress(OSError):  # the next append tries again, and says so
            self._open()

    @property
    def size_bytes(self) -> int:
        """Returns how many bytes of the log the index covers."""
        return self._last_size_bytes

    def append(self, at_s: float, size_bytes: int) -> None:
        """Records in the index that the log had `size_bytes` bytes at the time `at_s`. Does nothing if the log has
        not grown.
        """
        try:
            if self._fd is None:
                self._open()
            if size_bytes > self._last_size_bytes:
                self._write(max(int(at_s * 1000), self._last_ms), size_bytes)
            self._is_in_trouble = False
        except OSError as error:
            self._complain(error)

    def reset(self) -> None:
        """Clears the index, because the log was restarted."""
        try:
            if self._fd is None:
                self._open()
            os.ftruncate(self._fd_open(), 0)
        except OSError as error:
            self._complain(error)
        self._end_bytes = self._last_ms = self._last_size_bytes = 0

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> None:
        """Opens the index for writing after its last complete record."""
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._end_bytes = os.fstat(self._fd).st_size // RECORD.size * RECORD.size
        last = os.pread(self._fd, RECORD.size, max(0, self._end_bytes - RECORD.size))
        if self._end_bytes and len(last) == RECORD.size:
            self._last_ms, self._last_size_bytes = RECORD.unpack(last)

    def _fd_open(self) -> int:
        assert self._fd is not None
        return self._fd

    def _write(self, at_ms: int, size_bytes: int) -> None:
        # Written at its own place, not appended: half a record on a full disk is then written over, not built upon.
        if os.pwrite(self._fd_open(), RECORD.pack(at_ms, size_bytes), self._end_bytes) < RECORD.size:
            raise OSError("short write: only part of an index record was written")
        self._end_bytes += RECORD.size
        self._last_ms, self._last_size_bytes = at_ms, size_bytes

    def _complain(self, error: OSError) -> None:
        if not self._is_in_trouble:
            self._say(
                f"{self._path} cannot be written ({error}): searches of this log by time will be inexact"
            )
        self._is_in_trouble = True


class Index:
    """Reader of the time index of one log.

    An incomplete last record does not count; a missing index has no records.
    """

    def __init__(self, log: Path, block_bytes: int = BLOCK_BYTES) -> None:
        self._path = index_path(log)
        self._block_bytes = block_bytes
        try:
            self.count = self._path.stat().st_size // RECORD.size
        except OSError:
            self.count = 0

    def first_at(self, since_s: float) -> int:
        """Returns the number of the first record at or after `since_s`; `count` if all are earlier."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            at_s, _ = self.record(middle)
            low, high = (middle + 1, high) if at_s < since_s else (low, middle)
        return low

    def first_holding(self, end: int) -> int:
        """Returns the number of the first record with an offset of at least `end`; `count` if there is
        none.
        """
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            _, size_bytes = self.record(middle)
            low, high = (middle + 1, high) if size_bytes < end else (low, middle)
        return low

    def record(self, number: int) -> tuple[float, int]:
        """Returns the time in seconds and the offset in bytes of a record; (0, 0) if it cannot be read."""
        found = _read_at(self._path, number * RECORD.size, RECORD.size)
        if len(found) < RECORD.size:
            return 0.0, 0
        at_ms, offset = RECORD.unpack(found)
        return at_ms / 1000, offset

    def records(self, first: int) -> Iterator[tuple[float, int]]:
        """Yields the records from number `first` on. Records that step back in time or offset are skipped."""
        last_ms = last_offset = 0
        at_bytes, end_bytes = first * RECORD.size, self.count * RECORD.size
        while block := _read_at(self._path, at_bytes, min(self._block_bytes, end_bytes - at_bytes)):
            whole_bytes = len(block) // RECORD.size * RECORD.size
            for at_ms, offset in RECORD.iter_unpack(block[:whole_bytes]):
                if offset > last_offset and at_ms >= last_ms:
                    last_ms, last_offset = at_ms, offset
                    yield at_ms / 1000, offset
            if not whole_bytes:
                return
            at_bytes += whole_bytes


class Segment(Struct, frozen=True):
    """A part of a log that ends at byte `end`, whose lines share one time.

    `earliest_s`: they were not written before this time. `exact`: False if `at_s` is only the file's last
    change.
    """

    end: int
    at_s: float
    earliest_s: float
    exact: bool


def index_path(log: Path) -> Path:
    return log.with_name(log.name + ".idx")


def rank_of_source(source: str) -> int | None:
    """Returns the rank that writes a log file: 2 for `rank-2.log`; None for a file that several ranks may
    share.
    """
    match = SOURCE.fullmatch(source)
    return int(match["rank"]) if match and match["rank"] else None


def read_lines(
    worker_dirs: Iterable[tuple[int, int, Path]],
    *,
    since_s: float | None = None,
    until_s: float | None = None,
    grep: re.Pattern[bytes] | None = None,
    rank: int | None = None,
    sources: Container[str] | None = None,
) -> Iterator[LogLine]:
    """Yields the lines of several workers' logs in order of time; lines of one file keep their order.

    `worker_dirs`: tuples (attempt, worker, folder). `since_s`, `until_s`: inclusive limits; a line with an
    inexact time is included if it may lie within. `rank`: only lines known to be of this rank, by file name
    or prefix.
    """
    since_s = float("-inf") if since_s is None else since_s
    until_s = float("inf") if until_s is None else until_s
    named = [
        (attempt, worker, folder, source)
        for attempt, worker, folder in sorted(worker_dirs)
        for source in _sources_in(folder, sources, rank)
    ]
    block_bytes = max(BLOCK_BYTES_MIN, min(BLOCK_BYTES, BLOCKS_BYTES_MAX // max(1, len(named))))
    files = []
    for attempt, worker, folder, source in named:
        log = _Log(folder / source, attempt, worker, source, block_bytes)
        files.append(log.lines(since_s, until_s, grep, rank, clock_ahead_s(folder)))
    return heapq.merge(*files, key=attrgetter("at_s"))


def clock_ahead_s(folder: Path) -> float:
    """Returns by how many seconds the clock that stamped a worker's logs is ahead of the job's clock; 0 if
    unknown.
    """
    try:
        note = msgspec.json.decode((folder / CLOCK_NOTE).read_bytes(), type=ClockNote)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return 0.0
    return note.ahead_s if abs(note.ahead_s) < FAR_S else 0.0


def _sources_in(folder: Path, wanted: Container[str] | None, rank: int | None) -> list[str]:
    try:
        names = sorted(name for name in os.listdir(folder) if SOURCE.fullmatch(name))
    except OSError:
        return []
    if wanted is not None:
        names = [name for name in names if name in wanted]
    return [name for name in names if rank is None or rank_of_source(name) in (None, rank)]


class _Log:
    """One log that is read in order of time.

    It is not kept open, because a large job has more logs than a process may open.
    """

    def __init__(self, path: Path, attempt: int, worker: int, source: str, block_bytes: int) -> None:
        self._path = path
        self._block_bytes = block_bytes
        self._origin = (attempt, worker, source)
        self._rank = rank_of_source(source)
        self._block = b""
        self._block_at = 0

    def lines(
        self,
        since_s: float,
        until_s: float,
        grep: re.Pattern[bytes] | None,
        rank: int | None,
        ahead_s: float = 0.0,
    ) -> Iterator[LogLine]:
        """Yields lines between two times of the job's clock.

        `ahead_s`: the clock that stamped the log minus the job's clock.
        """
        for segment, text in self._timed(since_s + ahead_s, until_s + ahead_s):
            if grep is not None and not grep.search(text):
                continue
            whose = self._rank if self._rank is not None else _rank_named(text)
            if rank is None or whose == rank:
                yield LogLine(
                    segment.at_s - ahead_s, *self._origin, whose, _without_hole(text), segment.exact
                )

    def _timed(self, since_s: float, until_s: float) -> Iterator[tuple[Segment, bytes]]:
        try:
            # Before the index: what is written and indexed afterwards is left for the next reading.
            stat = self._path.stat()
        except OSError:
            return
        index = Index(self._path, self._block_bytes)
        first = index.first_at(since_s)
        before_s, start = index.record(first - 1) if first else (float("-inf"), 0)
        cutter = LineCutter()
        at = self._line_start(min(start, stat.st_size), cutter)
        for segment in _segments(index.records(first), before_s, stat):
            if segment.earliest_s > until_s or (segment.exact and segment.at_s > until_s):
                return  # an unfinished line is complete only after `until_s`
            if segment.at_s < since_s:
                at = segment.end
                continue
            while at < segment.end:
                block = self._read(at, segment.end)
                if not block:
                    return
                at += len(block)
                for text in cutter.feed(block):
                    yield segment, text
            if segment.end >= stat.st_size and (rest := cutter.flush()):
                yield segment, rest

    def _line_start(self, at: int, cutter: LineCutter) -> int:
        """Returns the offset at which the line begins that continues at `at`.

        A line longer than the limit is left out.
        """
        before_at = max(0, at - LINE_BYTES_MAX)
        before = _read_at(self._path, before_at, at - before_at)
        if not before:
            return at
        end = max(before.rfind(one) for one in LINE_ENDS) + 1
        if not end and before_at:
            cutter.skip_line()
            return at
        return before_at + end

    def _read(self, start: int, end: int) -> bytes:
        """Returns bytes from `start` on, none at or after `end`."""
        at = start - self._block_at
        if not 0 <= at < len(self._block):
            self._block, self._block_at, at = _read_at(self._path, start, self._block_bytes), start, 0
        return self._block[at : at + end - start]


def _segments(
    records: Iterator[tuple[float, int]], before_s: float, stat: os.stat_result
) -> Iterator[Segment]:
    """Yields the parts of a log that share one time; the last, beyond the index, has only the file's last
    change.
    """
    end = -1
    for at_s, offset in records:
        end = min(offset, stat.st_size)
        yield Segment(end, at_s, before_s, exact=True)
        before_s = at_s
        if offset >= stat.st_size:
            return
    yield Segment(stat.st_size, max(stat.st_mtime, before_s), before_s, exact=False)


def _without_hole(text: bytes) -> bytes:
    return GIVEN_UP + text.lstrip(b"\0") if text.startswith(b"\0\0\0\0") else text


def _rank_named(text: bytes) -> int | None:
    match = RANK_PREFIX.match(text)
    return int(match[1]) if match else None


def _read_at(path: Path, offset: int, size_bytes: int) -> bytes:
    """Returns bytes of a file; empty if they cannot be read."""
    if size_bytes <= 0:
        return b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(fd, size_bytes, offset)
    except OSError:
        return b""
    finally:
        os.close(fd)

"""Builds pages of a job's output: lines of one or more files in order of time, before or after a position.

A page reads a limited number of bytes. Its cursors continue from there.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.archive.output import cursors
from holdfast.archive.output.log_files import LogFile
from holdfast.archive.output.patterns import Pattern, line_starts
from holdfast.archive.output.timed_lines import RawLine, TimedLines
from holdfast.model.documents.output import OutputLine, OutputPage
from holdfast.model.documents.parts import LinePlace

LINES_MAX = 2_000
LINES_DEFAULT = 200
FILES_MAX = 64  # on one time axis; more are unreadable for people
PAGE_BYTES_MAX = 4 << 20  # text per page
SCAN_BYTES = 8 << 20  # searched per block
SCAN_S_MAX = 2.0  # a search returns what it has after this time

Direction: TypeAlias = Literal["before", "after", "around"]


class TooManyFiles(ValueError):
    """Error: the selection has more files than one page merges. The message says how to reduce it."""


class Start(Struct, frozen=True, kw_only=True):
    """Where a page of output starts: the first of `cursor`, `offset` (in a single file) and `at_s` that is given.

    By default, at the end of the files for "before" and at their beginning for "after". "around": the position is in
    the middle of the page.
    """

    direction: Direction = "before"
    cursor: str = ""
    offset: int | None = None
    at_s: float | None = None
    limit: int = LINES_DEFAULT


def page(
    logs: list[LogFile],
    start: Start,
    *,
    pattern: Pattern | None = None,
    marked: Mapping[str, int] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    scan_bytes: int = SCAN_BYTES,
) -> OutputPage:
    """Returns a page of output lines. Raises TooManyFiles and cursors.BadCursor.

    `marked`: offsets of first errors by file. `pattern`: only matching lines; it searches forwards only.
    """
    if len(logs) > FILES_MAX:
        raise TooManyFiles(
            f"{len(logs)} files match, but one page merges at most {FILES_MAX}: select an attempt, workers or ranks"
        )
    given = cursors.read(start.cursor) if start.cursor else None
    limit = max(1, min(start.limit, LINES_MAX))
    with ExitStack() as stack:
        files = [stack.enter_context(TimedLines(log)) for log in logs]
        places = {file.log.name: _first_place(file, start, given) for file in files}
        scanned_bytes = 0
        if pattern is not None:
            search = _Search(files, places, pattern, monotonic, scan_bytes)
            lines, ends = search.lines(limit)
            scanned_bytes = search.scanned_bytes
            begins = places
        else:
            earlier, begins = _before(files, places, _earlier_max(start.direction, limit))
            later, ends = _after(files, places, limit - len(earlier) if start.direction != "before" else 0)
            lines = earlier + later
        sizes = {file.log.name: file.size_bytes for file in files}
    return OutputPage(
        lines=tuple(_document(log, line, marked or {}, pattern is not None) for log, line in lines),
        before=cursors.written(begins) if any(begins.values()) else "",
        after=cursors.written(ends) if files else "",
        scanned_bytes=scanned_bytes,
        size_bytes=sum(sizes.values()),
    )


def _earlier_max(direction: Direction, limit: int) -> int:
    """Returns the maximum number of lines before the position."""
    return {"before": limit, "around": limit // 2, "after": 0}[direction]


def _first_place(file: TimedLines, start: Start, given: dict[str, int] | None) -> int:
    if given is not None:  # a file that did not exist then is new: all of it comes after
        return min(given.get(file.log.name, 0), file.size_bytes)
    if start.offset is not None:
        return file.line_start(start.offset)
    if start.at_s is not None:
        return file.line_start(file.times.place(start.at_s))
    return 0 if start.direction == "after" else file.size_bytes


Found: TypeAlias = list[tuple[LogFile, RawLine]]


def _after(files: list[TimedLines], places: Mapping[str, int], limit: int) -> tuple[Found, dict[str, int]]:
    """Returns the next lines in order of time, and the offset after them in each file."""
    ends = dict(places)
    found: Found = []
    if not limit:
        return found, ends
    total_bytes = 0
    merged = heapq.merge(
        *(_keyed(file, number, file.forwards(places[file.log.name])) for number, file in enumerate(files))
    )
    for _, number, _, line in merged:
        log = files[number].log
        found.append((log, line))
        ends[log.name] = line.end
        total_bytes += len(line.text)
        if len(found) >= limit or total_bytes >= PAGE_BYTES_MAX:
            break
    return found, ends


def _before(files: list[TimedLines], places: Mapping[str, int], limit: int) -> tuple[Found, dict[str, int]]:
    """Returns the previous lines in order of time, and the offset before them in each file."""
    begins = dict(places)
    found: Found = []
    if not limit:
        return found, begins
    total_bytes = 0
    merged = heapq.merge(
        *(
            _keyed(file, -number, file.backwards(places[file.log.name]), back=True)
            for number, file in enumerate(files)
        )
    )
    for _, number, _, line in merged:
        log = files[-number].log
        found.append((log, line))
        begins[log.name] = line.offset
        total_bytes += len(line.text)
        if len(found) >= limit or total_bytes >= PAGE_BYTES_MAX:
            break
    return found[::-1], begins


def _keyed(
    file: TimedLines, number: int, lines: Iterable[RawLine], *, back: bool = False
) -> Iterator[tuple[float, int, int, RawLine]]:
    """Yields lines with their sort key: time, file, offset. Times within a file never decrease."""
    last_s = float("inf") if back else float("-inf")
    for line in lines:
        last_s = min(last_s, line.at_s) if back else max(last_s, line.at_s)
        yield (-last_s, number, -line.offset, line) if back else (last_s, number, line.offset, line)


class _Search:
    """A search through several files in order of time: it always continues in the file that is earliest."""

    def __init__(
        self,
        files: list[TimedLines],
        places: Mapping[str, int],
        pattern: Pattern,
        monotonic: Callable[[], float],
        scan_bytes: int,
    ) -> None:
        self.scanned_bytes = 0
        self._files = files
        self._at = [places[file.log.name] for file in files]
        self._pattern = pattern
        self._monotonic = monotonic
        self._scan_bytes = scan_bytes
        self._until_s = monotonic() + SCAN_S_MAX
        # a heap of matches that no page has returned yet
        self._matches: list[tuple[float, int, int, RawLine]] = []

    def lines(self, limit: int) -> tuple[Found, dict[str, int]]:
        """Returns matching lines in order of time, and the offsets from which to continue."""
        found: Found = []
        while len(found) < limit:
            number = self._earliest()
            horizon_s = float("inf") if number is None else self._time(number)
            while self._matches and self._matches[0][0] < horizon_s and len(found) < limit:
                _, owner, _, line = heapq.heappop(self._matches)
                found.append((self._files[owner].log, line))
            if number is None or len(found) >= limit or (self.scanned_bytes and self._is_late()):
                break
            self._scan(number, limit)
        # The next page finds a match again if this page does not return it.
        for _, owner, offset, _ in self._matches:
            self._at[owner] = min(self._at[owner], offset)
        return found, {file.log.name: at for file, at in zip(self._files, self._at, strict=True)}

    def _is_late(self) -> bool:
        return self._monotonic() >= self._until_s

    def _earliest(self) -> int | None:
        unread = [number for number, file in enumerate(self._files) if self._at[number] < file.size_bytes]
        return min(unread, key=self._time, default=None)

    def _time(self, number: int) -> float:
        """Returns a lower bound of the times after the position in this file."""
        return self._files[number].times.of(self._at[number] + 1)[0]

    def _scan(self, number: int, limit: int) -> None:
        file, at = self._files[number], self._at[number]
        block = file.read(at, self._scan_bytes)
        if not block:
            self._at[number] = file.size_bytes
            return
        if at + len(block) < file.size_bytes:
            whole = max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1)) + 1
            block = block[:whole] if whole else block
        starts, searched_bytes = line_starts(self._pattern, block)
        if len(starts) > limit:  # a later page reads the rest again
            starts, searched_bytes = starts[:limit], starts[limit]
        for start in starts:
            line = file.line_at(at + start)
            if line is not None:
                heapq.heappush(self._matches, (line.at_s, number, line.offset, line))
        self.scanned_bytes += searched_bytes
        self._at[number] = at + searched_bytes


def _document(log: LogFile, line: RawLine, marked: Mapping[str, int], matched: bool) -> OutputLine:
    return OutputLine(
        place=LinePlace(
            file=log.name, offset=line.offset, attempt=log.attempt, worker=log.worker, rank=log.rank
        ),
        text=line.text.decode("utf-8", "backslashreplace"),
        at_s=line.at_s,
        cut_bytes=line.cut_bytes,
        first_error=marked.get(log.name) == line.offset,
        matched=matched,
    )

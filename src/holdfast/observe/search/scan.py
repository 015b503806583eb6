"""Searches logs for all signatures in one pass, with a few threads, each holding one block of one log in
memory.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import local
from typing import BinaryIO

from msgspec import Struct

from holdfast.model.matches import Search, Skipped, Source
from holdfast.model.signatures import Signature
from holdfast.observe.logs.blocks import blocks, new_buffer
from holdfast.observe.logs.line_numbers import lines_of
from holdfast.observe.logs.rotated import as_streams
from holdfast.observe.logs.streams import ReadAhead, Reader, Unreadable
from holdfast.observe.logs.tree import Log, LogFile, find, natural, of_stdin, opened
from holdfast.observe.search.automaton import Engine, engine
from holdfast.observe.search.sweep import Allowance, Caps, Entry, Knowledge, Sweep, made

THREADS_MAX = 4
# What `re` needs for a log and for its text; compiling all signatures takes seconds, but pays at the next search.
RE_LOG_S = 0.003
RE_BYTE_S = 1 / 5e6
RE_MAX_S = 0.4
MEMORY_BYTES = 64 << 20
SKIPPED_MAX = 1000
COUNTED_BYTES = 256 << 20  # whose lines are counted; more of a large tree
COUNTED_PART = 16
LAST_S = 1e12  # later than any stamp
TEXTS_IN_ALL = 100_000  # kept of one signature, over all logs
LINES_IN_ALL = 300_000  # looked at of one signature, over all logs
TRACEBACKS_IN_ALL = 8000  # stretches read for them


def search(
    paths: Sequence[Path],
    signatures: Sequence[Signature],
    *,
    stdin: BinaryIO | None = None,
    cache: Path | None = None,
    beside: Callable[[Log], object] | None = None,
) -> Search:
    """Returns all matches of signatures in the logs under the paths and on stdin.

    `cache`: folder for compiled signatures. `beside`: receives files that are not logs but belong to the job, from
    several threads (flight records, stack dumps). Raises SignatureError for a signature that cannot be searched for.
    """
    skipped: list[Skipped] = []
    files = find(paths, skipped.append)
    left_s = RE_MAX_S - sum(RE_LOG_S + RE_BYTE_S * file.size_bytes for file in files)
    ahead = None if stdin is None else ReadAhead(stdin, max(1, int(left_s / RE_BYTE_S)))
    is_small = left_s > 0 and (ahead is None or ahead.is_all)
    pool = _SearchPool(signatures, engine(signatures, cache, is_small=is_small), len(files) + 1, beside)
    found = pool.search(files)
    if ahead is not None:
        found.append(pool.search_stdin(ahead))
    logs = sorted((log for one in found for log in one.logs), key=lambda log: natural(log.source.name))
    _count_lines(logs, pool.knowledge)
    matches = tuple(
        made(entry, number, pool.knowledge) for number, log in enumerate(logs) for entry in log.entries
    )
    return Search(
        sources=as_streams([log.source for log in logs]),
        matches=matches,
        skipped=_shortened([*skipped, *(note for one in found for note in one.skipped)]),
        bytes_read=sum(log.source.size_bytes for log in logs),
    )


class FoundLog(Struct, frozen=True):
    """Matches in one log. `path`: of a log that can be read again; None for a decompressed one."""

    source: Source
    entries: list[Entry]
    path: Path | None


class FoundFile(Struct, frozen=True):
    """Matches in one file, which has several logs if it is an archive."""

    logs: list[FoundLog]
    skipped: list[Skipped]


class _SearchPool:
    """A pool of search threads, and the buffers of each."""

    def __init__(
        self,
        signatures: Sequence[Signature],
        first: Engine,
        logs: int,
        beside: Callable[[Log], object] | None,
    ) -> None:
        self.knowledge = Knowledge(signatures)
        self._engine = first
        self._beside = beside
        self._own = local()
        self._allowance = Allowance(MEMORY_BYTES)
        self._caps = Caps(
            texts=_share(TEXTS_IN_ALL, logs, 10, Caps().texts),
            lines=_share(LINES_IN_ALL, logs, 200, Caps().lines),
            tracebacks=_share(TRACEBACKS_IN_ALL, logs, 3, Caps().tracebacks),
        )

    def search(self, files: Sequence[LogFile]) -> list[FoundFile]:
        """Searches the files, largest first, and returns the results in the order given."""
        order = sorted(range(len(files)), key=lambda number: -files[number].size_bytes)
        threads = min(THREADS_MAX, len(os.sched_getaffinity(0)), max(1, len(files)))
        with ThreadPoolExecutor(threads) as pool:
            found = dict(zip(order, pool.map(lambda number: self._file(files[number]), order), strict=True))
        return [found[number] for number in range(len(files))]

    def search_stdin(self, stdin: Reader) -> FoundFile:
        skipped: list[Skipped] = []
        return self._logs(of_stdin(stdin, skipped.append), skipped, None)

    def _file(self, file: LogFile) -> FoundFile:
        skipped: list[Skipped] = []
        return self._logs(opened(file, skipped.append), skipped, file.path)

    def _logs(self, logs: Iterator[Log], skipped: list[Skipped], path: Path | None) -> FoundFile:
        found: list[FoundLog] = []
        for log in logs:
            if log.kind is None:
                found.append(self._log(log, skipped, path))
            elif self._beside is not None:
                self._beside(log)
            else:
                skipped.append(Skipped(name=log.name, why="it is a flight record or a stack dump, not a log"))
        return FoundFile(found, skipped)

    def _log(self, log: Log, skipped: list[Skipped], path: Path | None) -> FoundLog:
        own = self._own
        if not hasattr(own, "engine"):
            own.engine, own.buffer = self._engine.fork(), new_buffer()
        is_stream = log.file is None
        sweep = Sweep(
            log.name, self.knowledge, own.engine, self._caps, self._allowance, counts_lines=is_stream
        )
        try:
            for block in blocks(log, own.buffer):
                sweep.take(block)
        except Unreadable as error:
            skipped.append(Skipped(name=log.name, why=str(error), lost=True))
        return FoundLog(*sweep.finish(), path if log.file else None)


def _share(in_all: int, logs: int, least: int, most: int) -> int:
    return min(most, max(least, in_all // logs))


def _shortened(skipped: Sequence[Skipped]) -> tuple[Skipped, ...]:
    if len(skipped) <= SKIPPED_MAX:
        return tuple(skipped)
    left = skipped[SKIPPED_MAX:]
    why = f"{len(left)} more files were not read, or not completely"
    more = Skipped(name="...", why=why, lost=any(one.lost for one in left))
    return (*skipped[:SKIPPED_MAX], more)


def _count_lines(logs: Sequence[FoundLog], knowledge: Knowledge) -> None:
    """Computes line numbers of matches in large logs, those of the earliest causes first, within a limited
    effort.

    Others keep line 0; `line_numbers.line_of` counts them when needed.
    """
    left_bytes = max(COUNTED_BYTES, sum(log.source.size_bytes for log in logs) // COUNTED_PART)
    for log in sorted(logs, key=lambda log: _rank_of_counting(log, knowledge)):
        without = {entry.offset for entry in log.entries if not entry.line}
        within = [offset for offset in without if offset <= left_bytes]
        if log.path is None or not within:
            continue
        left_bytes -= max(within)
        with suppress(OSError):
            lines = dict(lines_of(log.path, within))
            for entry in log.entries:
                entry.line = entry.line or lines.get(entry.offset, 0)


def _rank_of_counting(log: FoundLog, knowledge: Knowledge) -> float:
    stamps = (entry.writer.stamp_s for entry in log.entries if knowledge.is_cause(entry.number))
    return min((stamp or LAST_S for stamp in stamps), default=2 * LAST_S)

"""Lists the output files of a job with their sizes and the period in which they were written."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.output import OutputFile
from holdfast.observe.logs.index import SOURCE, Index, clock_ahead_s, rank_of_source

ATTEMPT_DIR = re.compile(r"attempt-(\d{1,6})")
WORKER_DIR = re.compile(r"worker-(\d{1,6})")


class LogFile(Struct, frozen=True, kw_only=True):
    """One output file of a worker.

    `name`: relative to the job's folder, as in `OutputFile.file`. `ahead_s`: the clock of its times minus the
    job's clock.
    """

    path: Path
    name: str
    attempt: int
    worker: int
    rank: int | None
    ahead_s: float = 0.0

    def size_bytes(self) -> int:
        """Returns the size in bytes; 0 if the file is missing or unreadable."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def document(self) -> OutputFile:
        index = Index(self.path)
        first_s = index.record(0)[0] - self.ahead_s if index.count else None
        last_s = index.record(index.count - 1)[0] - self.ahead_s if index.count else None
        return OutputFile(
            file=self.name,
            attempt=self.attempt,
            worker=self.worker,
            rank=self.rank,
            size_bytes=self.size_bytes(),
            from_s=first_s,
            to_s=last_s,
        )


class Selection(Struct, frozen=True, kw_only=True):
    """Selection of output files; None selects all.

    `ranks`: only files of these ranks, without files that ranks share.
    """

    file: str | None = None
    attempt: int | None = None
    workers: Collection[int] | None = None
    ranks: Collection[int] | None = None


EVERYTHING = Selection()


def log_files(job: JobDir, selection: Selection = EVERYTHING) -> list[LogFile]:
    """Returns the selected output files, ordered by attempt, worker and name. An unreadable folder has none.

    Names come from the folder and never from the request, so no path leaves the job's folder.
    """
    return sorted(_found(job, selection), key=_order)


def _order(log: LogFile) -> tuple[int, int, int, str]:
    """Returns the sort key of a file. Files that no single rank writes come first."""
    return log.attempt, log.worker, -1 if log.rank is None else log.rank, log.name


def _found(job: JobDir, selection: Selection) -> Iterator[LogFile]:
    for attempt, attempt_dir in _numbered(job.path, ATTEMPT_DIR):
        if selection.attempt not in (None, attempt):
            continue
        for worker, folder in _numbered(attempt_dir, WORKER_DIR):
            if selection.workers is None or worker in selection.workers:
                yield from _of_worker(job, folder, attempt, worker, selection)


def _of_worker(
    job: JobDir, folder: Path, attempt: int, worker: int, selection: Selection
) -> Iterator[LogFile]:
    ahead_s = clock_ahead_s(folder)
    for entry in _entries(folder):
        if not SOURCE.fullmatch(entry.name) or not entry.is_file():
            continue
        rank = rank_of_source(entry.name)
        if selection.ranks is not None and rank not in selection.ranks:
            continue
        path = folder / entry.name
        name = str(path.relative_to(job.path))
        if selection.file in (None, name):
            yield LogFile(path=path, name=name, attempt=attempt, worker=worker, rank=rank, ahead_s=ahead_s)


def _numbered(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    for entry in _entries(folder):
        match = pattern.fullmatch(entry.name)
        if match and entry.is_dir(follow_symlinks=False):
            yield int(match[1]), folder / entry.name


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []

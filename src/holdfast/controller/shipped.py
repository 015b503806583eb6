"""Writes files that agents send, for agents that share no job folder with the controller."""

import os
import re
import resource
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from holdfast.model.nodes.workers import Shipped
from holdfast.observe.logs.index import SOURCE, IndexWriter

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
GAP = b"\n[holdfast: %d bytes are missing here]\n"
OPEN_MAX = 8192
OPEN_SHARE = 8  # one eighth of the files that this process may open; each has an index beside it
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class _File(Struct):
    """The copy of a file. `source_end`: how many bytes of the source it has. `index`: time index of a log."""

    path: str
    source_end: int
    index: IndexWriter | None
    descriptor: int | None = None  # while it is open, its index is, too


class ShippedFiles:
    """Writer of files that agents send. `folder`: the job's folder.

    `clock`: the job's clock; log lines are timestamped when they arrive. `workers`: (attempt, worker) pairs
    that sent files. `open_max`: maximum number of open files; None means as many as this process can spare.
    """

    def __init__(self, folder: Path, clock: Callable[[], float], open_max: int | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self.workers: set[tuple[int, int]] = set()
        self._files: dict[tuple[int, int, str], _File] = {}
        self._open: dict[str, _File] = {}  # by path, first opened first
        self._attempt = 0  # the last attempt that sent files
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._open_max = min(OPEN_MAX, soft // OPEN_SHARE) if open_max is None else open_max

    def close(self) -> None:
        """Closes all files; later data opens them again."""
        while self._open:
            self._close_one()

    def take(self, report: Shipped) -> str:
        """Writes a received piece of a file. Returns the error message if that failed; empty otherwise."""
        try:
            file = self._files.get((report.attempt, report.worker, report.name))
            if file is None:
                if not NAME.fullmatch(report.name) or report.attempt < 0 or report.worker < 0:
                    return f"a file named {report.name[:80]!r} is not accepted from an agent"
                file = self._known(report)
            self._append(file, report)
        except OSError as error:
            folder = self._folder_of(report)
            return f"output of worker {report.worker} cannot be written to {folder}: {error.strerror}"
        self.workers.add((report.attempt, report.worker))
        return ""

    def _known(self, report: Shipped) -> _File:
        folder = self._folder_of(report)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / report.name
        size = path.stat().st_size if path.exists() else 0
        index = None
        if SOURCE.fullmatch(report.name):
            index = IndexWriter(path, lambda text: None)
            index.close()
        file = _File(str(path), size, index)
        self._files[report.attempt, report.worker, report.name] = file
        return file

    def _append(self, file: _File, report: Shipped) -> None:
        """Appends data.

        Files stay open up to a limit, because a large job has more logs than a process may open.
        """
        data = report.data[max(0, file.source_end - report.offset) :]
        if not data:
            return
        if report.offset > file.source_end:
            data = GAP % (report.offset - file.source_end) + data
        descriptor = self._opened(file, report)
        with memoryview(data) as left:
            sent = 0
            while sent < len(data):
                sent += os.write(descriptor, left[sent:])
        size = os.fstat(descriptor).st_size
        file.source_end = report.offset + len(report.data)
        if file.index is not None:
            file.index.append(self._clock(), size)

    def _opened(self, file: _File, report: Shipped) -> int:
        if file.descriptor is not None:
            if os.fstat(file.descriptor).st_nlink:
                return file.descriptor
            self._close(file)  # the file was removed
        if report.attempt > self._attempt:  # so that removing files of older attempts frees their space
            self._attempt = report.attempt
            self.close()
        while len(self._open) >= self._open_max:
            self._close_one()
        try:
            file.descriptor = os.open(file.path, APPEND, 0o666)
        except FileNotFoundError:  # or its folder
            self._folder_of(report).mkdir(parents=True, exist_ok=True)
            file.descriptor = os.open(file.path, APPEND, 0o666)
        self._open[file.path] = file
        return file.descriptor

    def _close_one(self) -> None:
        self._close(next(iter(self._open.values())))

    def _close(self, file: _File) -> None:
        del self._open[file.path]
        descriptor, file.descriptor = file.descriptor, None
        if file.index is not None:
            file.index.close()
        if descriptor is not None:
            os.close(descriptor)

    def _folder_of(self, report: Shipped) -> Path:
        return self._folder / f"attempt-{report.attempt:03d}" / f"worker-{report.worker}"

"""Writes down what agents send of their workers' files, where they and the controller do not share the job's folder."""

import re
from collections.abc import Callable
from pathlib import Path

from holdfast.model.nodes import Shipped
from holdfast.observe.logindex import SOURCE, IndexWriter

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
GAP = b"\n[holdfast: %d bytes are missing here]\n"


class ShippedFiles:
    """`folder`: the job's. `clock`: the job's; lines of logs are stamped as they come. `workers`: (attempt, worker)
    of which something came."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self.workers: set[tuple[int, int]] = set()
        self._ends: dict[
            Path, tuple[int, int]
        ] = {}  # of each file: where its source, and where the copy ends

    def take(self, report: Shipped) -> str:
        """Why it could not be written; "": it was, or was there already."""
        if not NAME.fullmatch(report.name) or report.attempt < 0 or report.worker < 0:
            return f"a file named {report.name[:80]!r} is not taken from an agent"
        folder = self._folder / f"attempt-{report.attempt:03d}" / f"worker-{report.worker}"
        path = folder / report.name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._append(path, report)
            self.workers.add((report.attempt, report.worker))
            if SOURCE.fullmatch(report.name):
                self._stamp(path)
        except OSError as error:
            return f"output of worker {report.worker} cannot be kept in {folder}: {error.strerror}"
        return ""

    def _append(self, path: Path, report: Shipped) -> None:
        source_end = self._ends.get(path, (0, 0))[0]
        if path not in self._ends:
            source_end = path.stat().st_size if path.exists() else 0
        data = report.data[max(0, source_end - report.offset) :]
        if not data:
            return
        with path.open("ab") as file:
            if report.offset > source_end:
                file.write(GAP % (report.offset - source_end))
            file.write(data)
            end = file.tell()
        self._ends[path] = (report.offset + len(report.data), end)

    def _stamp(self, path: Path) -> None:
        """Opened for each piece: a large job has more logs than a process may have files."""
        index = IndexWriter(path, lambda text: None)
        index.append(self._clock(), path.stat().st_size)
        index.close()

"""Reads from a job's folder what an uplink sends: new journal rows, changed small files, bundles, ends of the
output.
"""

import hashlib
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast import __version__
from holdfast.archive.state import Truth, true_state
from holdfast.controller.loop import decisions
from holdfast.jobs.record import Record
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import JournalUnusable
from holdfast.journal.store import open_reader
from holdfast.link.uplink_messages import (
    FILE_BYTES_MAX,
    PART_BYTES,
    ROWS_BYTES_MAX,
    ROWS_MAX,
    Begin,
    FileSent,
    MetaSent,
    PartSent,
    Raw,
    RowsSent,
)

TAIL_BYTES = 256 << 10  # of each output file, after the job has ended
TAILS_BYTES_MAX = 32 << 20  # of all of them together
BUNDLE_BYTES_MAX = 64 << 20
END_ORDER = b'"kind":"end-job"'
_SMALL = ("attempt-*/steps.json", "attempt-*/worker-*/steps.json", "attempt-*/worker-*/clock.json")
_OUTPUT = re.compile(r"stdout|stderr|rank-\d{1,9}\.log")


def source_name(state_root: Path) -> str:
    """Returns HOST-DIGEST, the name of this host and state folder for all its jobs."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-.") or "host"
    return f"{host[:100]}-{hashlib.blake2b(str(state_root.resolve()).encode(), digest_size=4).hexdigest()}"


class Source:
    """The folder of one job to stream. Raises JournalUnusable if there is no journal yet.

    `has_ended`: True if the rows read so far include the job's end.
    """

    def __init__(self, job: JobDir) -> None:
        self.job = job
        self.has_ended = False
        self._record = Record(job, open_reader(job.journal_path))
        self._reader = self._record.reader
        self._heard_seq = 0
        self._sent_meta: dict[str, bytes] = {}
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._bundles: dict[Path, tuple[int, int]] = {}

    def begin(self) -> Begin:
        """Returns the first message of a connection. Raises JournalUnusable."""
        self._sent_meta = self._meta()
        self._stamps.clear()
        self._bundles.clear()
        created_s = self.job.created_at_s()
        host = socket.gethostname()
        return Begin(
            job=self.job.name,
            source=source_name(self.job.path.parents[1]),
            host=host,
            identity=f"{host}:{created_s!r}",
            created_s=created_s,
            meta=self._sent_meta,
            version=__version__,
        )

    def rows(self, after_seq: int) -> RowsSent | None:
        """Returns the next journal rows; None if there are none. Raises JournalUnusable."""
        rows: list[Raw] = []
        size_bytes = 0
        for raw in self._reader.read_raw(after_seq):
            rows.append(raw)
            size_bytes += len(raw[2]) + len(raw[3])
            self.has_ended |= END_ORDER in raw[3]
            if len(rows) >= ROWS_MAX or size_bytes >= ROWS_BYTES_MAX:
                break
        if not rows and self._reader.damage:
            raise JournalUnusable(self._reader.damage)
        return RowsSent(rows=tuple(rows)) if rows else None

    def truth(self) -> Truth:
        """Returns the actual state of the job on this host. Raises JournalUnusable."""
        story = self._record.story
        for event, decision in decisions(self._news(), self._record.policy, story.state):
            story.hear(event, decision)
        return true_state(self.job, self._record.facts, story.summary(), time.time)

    def changed_meta(self) -> list[MetaSent]:
        """Returns the metadata values of the journal that have changed since the last call. Raises
        JournalUnusable.
        """
        meta = self._meta()
        changed = [
            MetaSent(key=key, value=value) for key, value in meta.items() if self._sent_meta.get(key) != value
        ]
        self._sent_meta = meta
        return changed

    def changed_files(self) -> Iterator[FileSent]:
        """Yields the small files that are new or have changed since the last call."""
        for pattern in _SMALL:
            for path in self.job.path.glob(pattern):
                with suppress(OSError):
                    stat = path.stat()
                    stamp = (stat.st_mtime_ns, stat.st_size)
                    if self._stamps.get(path) != stamp and stat.st_size <= FILE_BYTES_MAX:
                        content = path.read_bytes()
                        self._stamps[path] = stamp
                        yield FileSent(name=self._name(path), content=content)

    def new_bundles(self) -> Iterator[PartSent]:
        """Yields the parts of evidence bundles that are new since the last call."""
        for path in sorted(self.job.incidents.glob("incident-*.tar.zst")):
            with suppress(OSError):
                stat = path.stat()
                stamp = (stat.st_mtime_ns, stat.st_size)
                if self._bundles.get(path) != stamp and stat.st_size <= BUNDLE_BYTES_MAX:
                    self._bundles[path] = stamp
                    yield from self._parts(path, 0, stat.st_size)

    def tails(self) -> Iterator[PartSent]:
        """Yields the ends of all output files with their indexes, the newest attempt first, up to the size limit."""
        left_bytes = TAILS_BYTES_MAX
        folders = sorted(self.job.path.glob("attempt-*/worker-*"), reverse=True)
        for path in (path for folder in folders for path in sorted(folder.iterdir())):
            if not _OUTPUT.fullmatch(path.name) or left_bytes <= 0:
                continue
            for file in (path, path.with_name(path.name + ".idx")):
                with suppress(OSError):
                    size_bytes = file.stat().st_size
                    start = max(0, size_bytes - TAIL_BYTES) if file is path else 0
                    left_bytes -= size_bytes - start
                    yield from self._parts(file, start, size_bytes)

    def close(self) -> None:
        self._record.close()

    def _news(self) -> Iterator[Raw]:
        for raw in self._reader.read_raw(self._heard_seq):
            self._heard_seq = raw[5]
            yield raw

    def _parts(self, path: Path, start: int, size_bytes: int) -> Iterator[PartSent]:
        with path.open("rb") as file:
            file.seek(start)
            while start < size_bytes and (content := file.read(min(PART_BYTES, size_bytes - start))):
                yield PartSent(name=self._name(path), offset=start, content=content, size_bytes=size_bytes)
                start += len(content)

    def _meta(self) -> dict[str, bytes]:
        return {key: value for key, value in self._reader.all_meta().items() if key in ("policy", "job")}

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.job.path))

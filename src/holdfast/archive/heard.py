"""Reads the journal of one job repeatedly. Each read takes time only for the new entries."""

import os
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from holdfast.controller.quick_replay import QuickReplay
from holdfast.core.job.story import Line, Story
from holdfast.core.job.story_lines import RECORD_ONLY
from holdfast.jobs.record import RecordUnreadable
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import Tail
from holdfast.journal.store import JournalUnusable, Reader, open_reader
from holdfast.model.documents.jobs import LogLine
from holdfast.model.policy import Policy
from holdfast.views.jobs.job import FINDINGS_MAX

LOG_LINES_MAX = 50_000  # the newest lines of a fault-tolerance log
NO_POLICY = "the journal contains no policy: the default settings apply"
_FACTS = msgspec.json.Decoder(dict[str, Any])
_POLICY = msgspec.json.Decoder(Policy)


class Heard:
    """The journal of a job, read up to entry `seq`. If the journal file was replaced, reading starts over.

    Not thread-safe.
    """

    def __init__(self, job: JobDir) -> None:
        self.job = job
        self.damage = ""  # why the journal was not read to its end
        self.facts: dict[str, Any] = {}
        self.notes: tuple[str, ...] = ()
        self._identity = (0, 0)
        self._policy = b""
        self._tail = Tail()
        self._replay = QuickReplay(Policy(), on_line=self._add)
        self._begin(b"")

    @property
    def seq(self) -> int:
        """Returns the number of the last entry read."""
        return self._tail.seq

    @property
    def story(self) -> Story:
        return self._replay.story

    def read_on(self) -> None:
        """Reads new entries. Raises RecordUnreadable if nothing can be read."""
        try:
            reader = open_reader(self.job.journal_path)
        except JournalUnusable as error:
            raise RecordUnreadable(str(error)) from error
        try:
            self._read(reader)
        except JournalUnusable as error:
            raise RecordUnreadable(str(error)) from error
        finally:
            reader.close()

    def _read(self, reader: Reader) -> None:
        identity, meta = _identity(reader.path), reader.all_meta()
        policy = meta.get("policy", b"")
        if identity != self._identity or policy != self._policy or not reader.holds(self._tail):
            self._identity = identity
            self._begin(policy)
        self.facts = _decoded(_FACTS, meta.get("job")) or {}
        for chunk in reader.read_chunks(self._tail):
            self._replay.hear(chunk)
            self._tail = Tail(*chunk[-1][5:])
        self.damage = reader.damage

    def _begin(self, policy: bytes) -> None:
        self._policy = policy
        found = _decoded(_POLICY, policy)
        self.notes = () if found is not None else (NO_POLICY,)
        self.policy: Policy = found or Policy()
        self.findings: deque[LogLine] = deque(maxlen=FINDINGS_MAX)
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES_MAX)
        self._tail = Tail()
        self._replay = QuickReplay(self.policy, on_line=self._add)

    def _add(self, seq: int, line: Line) -> None:
        entry = LogLine(
            seq=seq,
            at_s=line.at_s,
            kind=line.kind,
            text=line.text,
            attempt=line.attempt,
            incident=line.incident,
            finding=line.finding,
        )
        self.log.append(entry)
        if line.finding and line.finding not in RECORD_ONLY:
            self.findings.append(entry)


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _decoded(decoder: msgspec.json.Decoder[Any], raw: bytes | None) -> Any:
    """Returns a decoded value of the journal; None if another version wrote it in another format."""
    try:
        return decoder.decode(raw) if raw else None
    except msgspec.MsgspecError:
        return None

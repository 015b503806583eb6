"""Follows the journal of one job: reads what is new in it, and makes the job's rows of all that was read."""

import os
from pathlib import Path
from typing import Any

import msgspec

from holdfast.archive.index.entry import JobEntry, Position, searchable
from holdfast.archive.places import Place
from holdfast.controller.quick_replay import QuickReplay
from holdfast.core.job.story import Summary
from holdfast.jobs.record import supervisor
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import Tail
from holdfast.journal.store import JournalUnusable, Reader, open_reader
from holdfast.model.documents.parts import LIVE_STATES, JobState, Sentence
from holdfast.model.documents.jobs import IncidentRow, JobRow
from holdfast.model.policy import Policy
from holdfast.model.signatures import Words

NO_JOURNAL = ""
_FACTS = msgspec.json.Decoder(dict[str, Any])
_POLICY = msgspec.json.Decoder(Policy)


class Tracked:
    """`entry` makes the rows from the disk as it is now and the journal as it was when `read` was called last."""

    def __init__(self, place: Place, job: JobDir) -> None:
        self.place, self.job = place, job
        self.id = place.id_of(job.name)
        self.trouble = ""  # why the journal could not be read to its end
        self._tail = Tail()
        self._identity = (0, 0)
        self._stamp = NO_JOURNAL
        self._meta: dict[str, bytes] = {}
        self._facts: dict[str, Any] = {}
        self._replay = QuickReplay(Policy())

    def read(self) -> int:
        """How many entries were new. A journal that cannot be read is not an error: `trouble` says why."""
        self._stamp = stamp(self.job)
        try:
            reader = open_reader(self.job.journal_path)
        except JournalUnusable as error:
            self.trouble = str(error)
            return 0
        try:
            return self._read(reader)
        except JournalUnusable as error:
            self.trouble = str(error)
            return 0
        finally:
            reader.close()

    @property
    def has_journal(self) -> bool:
        """False: there is none to read, and nothing to say of the job."""
        return self._stamp != NO_JOURNAL

    def entry(self) -> JobEntry:
        summary = self._replay.story.summary()
        row, incidents = _rows(self.id, self.place.source, self.job, self._facts, summary, self.trouble)
        nodes = dict.fromkeys(row.nodes)
        return JobEntry(
            row=row,
            incidents=incidents,
            nodes=tuple(nodes),
            live=row.state in LIVE_STATES or row.state == "unknown",
            search=searchable(_searched(row, summary)),
            position=Position(
                device=self._identity[0],
                inode=self._identity[1],
                seq=self._tail.seq,
                chain=self._tail.chain,
                stamp=self._stamp,
                trouble=self.trouble,
            ),
        )

    def _read(self, reader: Reader) -> int:
        """raises: JournalUnusable"""
        identity, meta = _identity(reader.path), reader.all_meta()
        if identity != self._identity or meta != self._meta or not reader.holds(self._tail):
            self._begin_anew(identity, meta)
        count = 0
        for chunk in reader.read_chunks(self._tail):
            self._replay.hear(chunk)
            self._tail = Tail(*chunk[-1][5:])
            count += len(chunk)
        self.trouble = reader.damage
        return count

    def _begin_anew(self, identity: tuple[int, int], meta: dict[str, bytes]) -> None:
        """Another journal stands there, or it has another policy."""
        self._identity, self._meta, self._tail = identity, meta, Tail()
        self._facts = _decoded(_FACTS, meta.get("job")) or {}
        self._replay = QuickReplay(_decoded(_POLICY, meta.get("policy")) or Policy())


def stamp(job: JobDir) -> str:
    """Changes whenever the journal does: inode, size and time of its file and of its log. Empty: there is no journal."""
    path = os.fspath(job.journal_path)
    main = _stat(path)
    return f"{main}/{_stat(path + '-wal')}" if main else NO_JOURNAL


def _stat(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}"


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _decoded(decoder: msgspec.json.Decoder[Any], raw: bytes | None) -> Any:
    """None too where another version wrote it in another shape."""
    try:
        return decoder.decode(raw) if raw is not None else None
    except msgspec.MsgspecError:
        return None


# INTERIM until views/jobs is there
def _searched(row: JobRow, summary: Summary) -> list[str]:
    firsts = [
        one.verdict.first_error.text
        for one in summary.incidents[-3:]
        if one.verdict is not None and one.verdict.first_error is not None
    ]
    words = row.sentence.text
    return [row.name, row.user, words.en, words.zh, row.category, *firsts, row.command, " ".join(row.nodes)]


def _rows(
    job_id: str, source: str, job: JobDir, facts: dict[str, Any], summary: Summary, trouble: str
) -> tuple[JobRow, tuple[IncidentRow, ...]]:
    state: JobState = "training"
    if summary.outcome:
        state = summary.outcome  # type: ignore[assignment]
    elif not supervisor(job, facts):
        state = "dead"
    incidents = tuple(
        IncidentRow(
            number=one.number,
            attempt=one.attempt,
            found_at_s=one.found_at_s,
            sentence=Sentence(text=Words(en=one.verdict.title if one.verdict else one.found, zh="")),
            category=one.verdict.category if one.verdict else "",
            over=one.over,
            cause=f"{one.verdict.category}: {one.verdict.title}" if one.verdict else "",
        )
        for one in summary.incidents
    )
    last = incidents[-1] if incidents else None
    row = JobRow(
        id=job_id,
        name=job.name,
        state=state,
        source=source,
        sentence=last.sentence if last else Sentence(text=Words(en=trouble or summary.phase_words, zh="")),
        submitted_at_s=summary.submitted_at_s,
        ended_at_s=summary.last_at_s if summary.outcome else None,
        seen_at_s=summary.last_at_s,
        step=summary.step,
        incidents=len(incidents),
        category=last.category if last else "",
        cause=last.cause if last else "",
    )
    return row, incidents

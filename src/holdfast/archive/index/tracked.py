"""Reads the journal of one job for the index, and builds the job's rows from all its entries."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.archive.index.entry import JobEntry, Position, searchable
from holdfast.archive.job import owner
from holdfast.archive.living import ProcessTable
from holdfast.archive.places import Place
from holdfast.archive.state import steps_now, true_state
from holdfast.controller.quick_replay import QuickReplay
from holdfast.core.job.story import KeptStory, Story, Summary
from holdfast.jobs.record import labels_of
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import Tail
from holdfast.journal.store import JournalUnusable, Reader, open_reader
from holdfast.model.documents.jobs import JobRow
from holdfast.model.documents.parts import LIVE_STATES, Sentence
from holdfast.model.policy import Policy
from holdfast.model.signatures import Words
from holdfast.views.jobs.rows import incident_row, job_row
from holdfast.views.jobs.seen import Seen
from holdfast.views.steps.rows import steps_of

NO_JOURNAL = ""
KEEP_EACH = 5_000  # entries between two saves of the replay state: the maximum that a restart replays
FIRST_ERRORS_MAX = 5  # of the last incidents; part of the search text
_FACTS = msgspec.json.Decoder(dict[str, Any])
_POLICY = msgspec.json.Decoder(Policy)


class KeptReplay(Struct, frozen=True):
    """The stored state of a replay. `policy`: the policy's bytes in the journal."""

    policy: bytes
    story: KeptStory


_KEPT = msgspec.msgpack.Decoder(KeptReplay)


class Tracked:
    """A job of the index, with its journal open for reading.

    `entry` combines the job's other files as they are now with its journal as of the last `read`.
    """

    def __init__(
        self, place: Place, job: JobDir, wall: Callable[[], float], known: Position | None = None
    ) -> None:
        """Creates a reader of the job's journal. `known`: the position at which an earlier reader stopped."""
        self.place, self.job = place, job
        self.id = place.id_of(job.name)
        self.trouble = ""  # why the journal could not be read to its end
        self._may_read_later = False  # True if the cause is not the content of the journal
        self._wall = wall
        self._known = known
        self._tail = Tail()
        self._identity = (0, 0)
        self._stamp = NO_JOURNAL
        self._policy = b""
        self._facts: dict[str, Any] = {}
        self._replay = QuickReplay(Policy())
        self._kept, self._kept_tail = b"", Tail()

    def read(self) -> int:
        """Reads new entries and returns their number. `trouble` states why a journal cannot be read."""
        self._stamp, self._may_read_later = stamp(self.job), False
        try:
            reader = open_reader(self.job.journal_path, leaves_nothing=True)
            try:
                return self._read(reader)
            finally:
                reader.close()
        except JournalUnusable as error:
            self.trouble, self._may_read_later = str(error), True
            return 0

    @property
    def has_journal(self) -> bool:
        """Returns False if the job has no journal, and so no row."""
        return self._stamp != NO_JOURNAL

    def entry(self, processes: ProcessTable | None = None) -> JobEntry:
        """Returns the index entry of the job.

        `processes`: a recent table of processes; None means to read it now.
        """
        summary = self._replay.story.summary()
        seen = self._seen(summary, processes)
        row = job_row(summary, seen) if self._tail.seq else _unreadable(seen, self.trouble)
        self._keep_if_due()
        return JobEntry(
            row=row,
            incidents=tuple(incident_row(one, summary, seen) for one in summary.incidents),
            nodes=_nodes(summary),
            live=row.state in LIVE_STATES or row.state == "unknown",
            search=searchable(_searched(row, summary)),
            position=Position(
                device=self._identity[0],
                inode=self._identity[1],
                seq=self._tail.seq,
                chain=self._tail.chain,
                stamp=NO_JOURNAL if self._may_read_later else self._stamp,
                trouble=self.trouble,
                kept_seq=self._kept_tail.seq,
                kept_chain=self._kept_tail.chain,
                kept=self._kept,
            ),
        )

    def _read(self, reader: Reader) -> int:
        """Reads new entries and returns their number. Raises JournalUnusable."""
        identity, meta = _identity(reader.path), reader.all_meta()
        policy = meta.get("policy", b"")
        if identity != self._identity or policy != self._policy or not reader.holds(self._tail):
            self._begin(reader, identity, policy)
        self._facts = _decoded(_FACTS, meta.get("job")) or {}
        count = 0
        for chunk in reader.read_chunks(self._tail):
            self._replay.hear(chunk)
            self._tail = Tail(*chunk[-1][5:])
            count += len(chunk)
        self.trouble = reader.damage
        return count

    def _begin(self, reader: Reader, identity: tuple[int, int], policy: bytes) -> None:
        """Starts at the first entry, or at the stored position if the journal is the same."""
        self._identity, self._policy = identity, policy
        self._tail = self._kept_tail = Tail()
        self._kept = b""
        self._replay = QuickReplay(_decoded(_POLICY, policy) or Policy())
        known, self._known = self._known, None
        if known is None or not known.kept or (known.device, known.inode) != identity:
            return
        tail, kept = Tail(known.kept_seq, known.kept_chain), _decoded(_KEPT, known.kept)
        if kept is not None and kept.policy == policy and reader.holds(tail):
            self._replay = QuickReplay(self._replay.policy, Story.restored(self._replay.policy, kept.story))
            self._tail = self._kept_tail = tail
            self._kept = known.kept

    def _keep_if_due(self) -> None:
        if self._tail.seq - self._kept_tail.seq >= KEEP_EACH:
            self._kept = msgspec.msgpack.encode(KeptReplay(self._policy, self._replay.story.kept()))
            self._kept_tail = self._tail

    def _seen(self, summary: Summary, processes: ProcessTable | None) -> Seen:
        """Returns the facts that the rows need from outside the journal."""
        truth = true_state(self.job, self._facts, summary, self._wall, processes)
        return Seen(
            id=self.id,
            name=self.job.name,
            state=truth.state,
            source=self.place.source,
            state_since_s=truth.since_s,
            seen_at_s=truth.seen_at_s,
            facts=self._facts,
            policy=self._replay.policy,
            user=owner(str(self.job.path)),
            labels=labels_of(self._facts),
            steps=steps_now(steps_of(self.job, summary), truth),
            living=truth.living,
            is_being_ended=truth.is_being_ended,
        )


def _unreadable(seen: Seen, trouble: str) -> JobRow:
    """Returns the row of a job whose journal is unreadable."""
    text = trouble or "the job's journal is empty"
    return JobRow(
        id=seen.id,
        name=seen.name,
        state="unknown",
        source=seen.source,
        user=seen.user,
        sentence=Sentence(text=Words(en=text, zh=text), tone="trouble", to_do=True),
        seen_at_s=seen.seen_at_s,
    )


def _nodes(summary: Summary) -> tuple[str, ...]:
    """Returns the nodes of all attempts, newest first."""
    found = dict.fromkeys(summary.nodes.values())
    for attempt in reversed(summary.attempts):
        found.update(dict.fromkeys(attempt.nodes.values()))
    return tuple(found)


def _searched(row: JobRow, summary: Summary) -> list[str]:
    """Returns the texts to search in, the most important first, because the total length is limited."""
    verdicts = [one.verdict for one in reversed(summary.incidents) if one.verdict is not None]
    firsts = [one.first_error.text for one in verdicts[:FIRST_ERRORS_MAX] if one.first_error is not None]
    words, labels = row.sentence.text, [f"{key}={value}" for key, value in row.labels.items()]
    return [
        row.name,
        row.user,
        words.en,
        words.zh,
        row.category,
        *firsts,
        *labels,
        row.command,
        " ".join(row.nodes),
    ]


def stamp(job: JobDir) -> str:
    """Returns a text that changes with the journal: inode, size and time of its file and its write-ahead log.

    Empty if there is no journal. An empty write-ahead log counts as none, because a concurrent reader may
    create one.
    """
    path = os.fspath(job.journal_path)
    main = _stat(path)
    return f"{main}/{_stat(path + '-wal')}" if main else NO_JOURNAL


def _stat(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}" if found.st_size else ""


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _decoded(decoder: msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any], raw: bytes | None) -> Any:
    """Returns a decoded value; None if another version wrote it in another format."""
    try:
        return decoder.decode(raw) if raw is not None else None
    except msgspec.MsgspecError:
        return None

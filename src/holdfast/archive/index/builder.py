"""Keeps the index up to date with the journals: reads new entries, checks live jobs, deletes removed jobs.

To be called (`turn`) several times a second from one thread. Each turn has a time limit.
"""

import os
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from sqlalchemy import select

from holdfast.archive.index.database import Database
from holdfast.archive.index.entry import JobEntry, Position
from holdfast.archive.index.node_book import BookWatch
from holdfast.archive.index.reading_processes import PROCESSES_S, Answer, ReadingProcesses, batches
from holdfast.archive.index.tables import CONTENT, JOBS, SOURCES
from holdfast.archive.index.tracked import Tracked
from holdfast.archive.index.watch import Watch
from holdfast.archive.index.writing import Writer
from holdfast.archive.living import ProcessTable
from holdfast.archive.places import Place, Places
from holdfast.journal.jobdir import JobDir

TURN_S = 0.15  # reading time per turn
CHECK_S = 3.0  # interval of state checks of a live job
CHECK_UNKNOWN_S = 60.0  # the same for a job whose host is unreachable
CHECKS_MAX = 25  # per turn; checks 1,000 live jobs within 10 s
ENTRIES_MAX = 200  # per transaction
TRACKED_MAX = 1_024  # jobs whose replay stays in memory
POOL_JOBS_MIN = 100  # from this many journals on, separate processes read them
POOL_BYTES_MIN = 64 << 20
BATCH_BYTES_MAX, BATCH_JOBS_MAX = 4 << 20, 50
WRITE_S = 1.0  # maximum delay of a write, so that a bulk read writes in batches
CONTENT_KEY, FOLDERS_KEY = "content", "folders"


class Progress(msgspec.Struct, frozen=True):
    """Progress of building the index: number of unread journals, and of all jobs."""

    waiting: int
    jobs: int


class _Known(NamedTuple):
    """The state of a job in the database. `rows`: a hash of its rows."""

    state: str
    rows: int

    @staticmethod
    def of(entry: JobEntry) -> "_Known":
        return _Known(entry.row.state, hash(msgspec.msgpack.encode((entry.row, entry.incidents))))


class Builder:
    """Builder of the index. `revision` increases with every change written.

    `clock`: the monotonic clock. `wall`: the clock of file times.
    """

    def __init__(
        self,
        database: Database,
        places: Places,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        processes: int,
        fleet: Path | None = None,
    ) -> None:
        """Creates a builder. `fleet`: folder of the node book; None means no node rows.

        Raises IndexUnusable.
        """
        self._database, self._places = database, places
        self._clock, self._wall = clock, wall
        self._writer = Writer(database, at_least=int(wall() * 1000))
        self._settle_contents()
        self._watch = Watch(places, self._stamps())
        self._tracked: OrderedDict[str, Tracked] = OrderedDict()
        self._due: deque[str] = deque()  # journals to read
        self._urgent: deque[str] = deque()  # the same for jobs that the index lists as live
        self._is_due: set[str] = set()
        self._gone: list[str] = []
        self._written: list[JobEntry] = []  # entries to write
        self._check_s: dict[str, float] = {}  # next state check by job
        self._written_s = 0.0
        self._known: dict[str, _Known] = {}  # what the database holds of live jobs
        self._book = BookWatch(fleet, clock, wall) if fleet is not None else None
        self._table = ProcessTable(clock, keep_s=PROCESSES_S)
        self._pool: ReadingProcesses | None = None
        self._processes = processes
        self._batch = 0

    @property
    def revision(self) -> int:
        return self._writer.revision

    @property
    def progress(self) -> Progress:
        waiting = (
            len(self._due)
            + len(self._urgent)
            + (self._pool.open * BATCH_JOBS_MAX if self._pool is not None else 0)
        )
        return Progress(min(waiting, len(self._watch)), len(self._watch))

    @property
    def is_idle(self) -> bool:
        """Returns True if the index contains everything found so far."""
        return not (
            self._due
            or self._urgent
            or self._written
            or self._gone
            or (self._pool is not None and self._pool.open)
        )

    def turn(self) -> bool:
        """Runs one turn of reading and writing. Returns True if it wrote rows.

        Raises IndexUnusable; a later turn then writes what was read.
        """
        now_s = self._clock()
        seen = self._watch.look(now_s, self._wall())
        self._gone += [name for name in seen.gone if name not in self._gone]
        for name in self._newest_first(seen.due):
            self._want(name)
        self._want_checks(now_s)
        self._read(now_s)
        self._read_book()
        is_busy = self._pool is not None and len(self._written) < ENTRIES_MAX
        if is_busy and now_s - self._written_s < WRITE_S:
            return False
        self._written_s = now_s
        return self._write()

    @property
    def trouble(self) -> str:
        """Returns why the node book could not be read; empty if it could."""
        return self._book.trouble if self._book is not None else ""

    def refresh(self, name: str) -> None:
        """Has the next turn read a job's journal, because an entry was added to it."""
        self._watch.wake(name)

    def close(self) -> None:
        if self._book is not None:
            self._book.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    # Scheduling -------------------------------------------------------------------------------------------

    def _settle_contents(self) -> None:
        """Clears an index that was built from other folders or by another version."""
        facts = {CONTENT_KEY: str(CONTENT), FOLDERS_KEY: self._places.signature}
        found = self._database.facts()
        if found != facts:
            if found:
                self._writer.clear()
            self._database.set_facts(facts)

    def _stamps(self) -> dict[str, str]:
        """Returns the stamps of indexed journals, without those of live jobs, which are thus read at once."""
        with self._database.reading() as connection:
            rows = connection.execute(
                select(SOURCES.c.job, SOURCES.c.stamp, JOBS.c.live).join(JOBS, JOBS.c.id == SOURCES.c.job)
            )
            return {name: "" if live else stamp for name, stamp, live in rows}

    def _want(self, name: str) -> None:
        if name not in self._is_due:
            self._is_due.add(name)
            (self._urgent if name in self._known else self._due).append(name)

    def _newest_first(self, names: Sequence[str]) -> Sequence[str]:
        """Sorts job names by the last change of their journals, newest first, because users look at the
        newest.
        """
        if len(names) < POOL_JOBS_MIN:
            return names
        found = [(name, self._watch.place_of(name)) for name in names]
        times = {name: _changed_s(place[1]) for name, place in found if place is not None}
        return sorted(times, key=lambda name: times[name], reverse=True)

    def _want_checks(self, now_s: float) -> None:
        """Schedules a limited number of state checks. Live jobs come before jobs on unreachable hosts."""
        due = [name for name, at_s in self._check_s.items() if at_s <= now_s]
        if len(due) > CHECKS_MAX:
            due = sorted(due, key=lambda name: (self._is_unknown(name), self._check_s[name]))[:CHECKS_MAX]
        for name in due:
            self._want(name)

    def _is_unknown(self, name: str) -> bool:
        known = self._known.get(name)
        return known is not None and known.state == "unknown"

    # Reading ----------------------------------------------------------------------------------------------

    def _read(self, now_s: float) -> None:
        until_s = now_s + TURN_S
        while self._urgent and self._clock() < until_s:
            self._read_here(self._next(self._urgent), now_s)
        if self._pool is not None or self._is_much():
            self._read_by_processes()
        while self._due and self._pool is None and self._clock() < until_s:
            self._read_here(self._next(self._due), now_s)

    def _is_much(self) -> bool:
        """Returns True if the unread journals are too many or too long to be read between two turns."""
        if not self._processes:
            return False
        if len(self._due) >= POOL_JOBS_MIN:
            return True
        total = 0
        for name in self._due:
            found = self._watch.place_of(name) if name not in self._tracked else None
            total += _size_bytes(found[1]) if found is not None else 0
            if total >= POOL_BYTES_MIN:
                return True
        return False

    def _next(self, names: deque[str]) -> str:
        name = names.popleft()
        self._is_due.discard(name)
        return name

    def _read_here(self, name: str, now_s: float) -> None:
        found = self._watch.place_of(name)
        if found is None:
            return
        tracked = self._tracked.get(name)
        if tracked is None:
            known = known_position(self._database, name)
            tracked = self._tracked[name] = Tracked(*found, self._wall, known)
        self._tracked.move_to_end(name)
        tracked.read()
        if tracked.has_journal:
            self._heard(tracked.entry(self._table), now_s)
        else:
            self._gone.append(name)
            self._forget(name)
        while len(self._tracked) > TRACKED_MAX:
            self._tracked.popitem(last=False)

    def _read_by_processes(self) -> None:
        if self._pool is None:
            self._pool = ReadingProcesses(self._processes)
        jobs = list[tuple[Place, str, int]]()
        while self._due and self._pool.open < 2 * self._processes:
            name = self._next(self._due)
            found = self._watch.place_of(name)
            if found is not None:
                jobs.append((found[0], found[1].name, _size_bytes(found[1])))
            if (
                sum(size for _, _, size in jobs) >= BATCH_BYTES_MAX
                or len(jobs) >= BATCH_JOBS_MAX
                or not self._due
            ):
                self._hand_out(jobs)
                jobs = []
        now_s = self._clock()
        for answer in self._pool.answers(wait_s=TURN_S):
            self._answered(answer, now_s)
        if not self._due and not self._pool.open:
            self._pool.close()
            self._pool = None

    def _hand_out(self, jobs: Sequence[tuple[Place, str, int]]) -> None:
        assert self._pool is not None, "it was just created"
        for batch in batches(jobs, BATCH_BYTES_MAX, BATCH_JOBS_MAX, self._batch):
            self._batch += 1
            self._pool.put(batch)

    def _answered(self, answer: Answer, now_s: float) -> None:
        """Stores the entries of a batch.

        If its process died, reads the batch here, so that the failing journal is reported.
        """
        if answer.failed:
            place = next(one for one in self._places.all if one.key == answer.batch.key)
            for name in answer.batch.names:
                self._read_here(place.id_of(name), now_s)
        for entry in answer.entries:
            self._heard(entry, now_s)

    def _read_book(self) -> None:
        rows = self._book.rows() if self._book is not None else None
        if rows is not None:
            self._writer.put_nodes(rows)

    # Writing ----------------------------------------------------------------------------------------------

    def _heard(self, entry: JobEntry, now_s: float) -> None:
        name = entry.row.id
        is_unknown = entry.row.state == "unknown"
        awake = entry.live and not is_unknown and not entry.position.trouble
        self._watch.was_read(name, entry.position.stamp, awake=awake)
        if entry.live:
            self._check_s[name] = now_s + (CHECK_UNKNOWN_S if is_unknown else CHECK_S)
        else:
            self._check_s.pop(name, None)
        if entry.live and self._known.get(name) == _Known.of(entry):
            return  # nothing visible changed
        self._written.append(entry)

    def _write(self) -> bool:
        done = False
        if self._gone:
            self._writer.remove(self._gone)
            for name in self._gone:
                self._forget(name)
            self._gone, done = [], True
        while self._written:
            latest = {entry.row.id: entry for entry in self._written[:ENTRIES_MAX]}
            self._writer.put(list(latest.values()))
            for name, entry in latest.items():
                if entry.live:
                    self._known[name] = _Known.of(entry)
                else:
                    self._known.pop(name, None)
            del self._written[:ENTRIES_MAX]
            done = True
        return done

    def _forget(self, name: str) -> None:
        for known in (self._tracked, self._check_s, self._known):
            known.pop(name, None)


def _changed_s(job: JobDir) -> float:
    times = [0.0]
    for path in (os.fspath(job.journal_path), os.fspath(job.journal_path) + "-wal"):
        with suppress(OSError):
            times.append(os.stat(path).st_mtime)
    return max(times)


def _size_bytes(job: JobDir) -> int:
    total = 0
    for path in (os.fspath(job.journal_path), os.fspath(job.journal_path) + "-wal"):
        with suppress(OSError):
            total += os.stat(path).st_size
    return total


def known_position(database: Database, name: str) -> Position | None:
    """Returns how far a job's journal was read into the index; None if the job is not indexed.

    Raises IndexUnusable.
    """
    with database.reading() as connection:
        row = connection.execute(select(SOURCES).where(SOURCES.c.job == name)).mappings().first()
    if row is None:
        return None
    return Position(**{key: row[key] for key in Position.__struct_fields__})

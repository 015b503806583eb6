"""Stores the journal of one job: an append-only SQLite file, readable while it is written.

Entries survive a kill of this process once `append` has returned: the kernel has them. They are not synced to
disk each time (synchronous=NORMAL), because a busy disk would block the event loop for seconds. So a power
failure or a kernel crash can lose the last entries, at most those since SQLite's last checkpoint (about 4 MB
of pages); the file stays consistent and without a gap. One writer at a time: the caller holds the job's lock.

Never changes or removes an entry; triggers in the file prevent it too.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.journal.repair import (
    build,
    check_version,
    connected,
    make_ready,
    proven,
    read_meta,
    sealed_chunks,
)
from holdfast.journal.rows import (
    INSERT_ENTRY,
    INSERT_META,
    Entry,
    JournalDamaged,
    JournalUnusable,
    NewerJournal,
    RawEntry,
    Row,
    SealedEntry,
    Tail,
    is_damage,
    meta_crc,
    seal,
    unusable,
    writable,
)

__all__ = [
    "Entry",
    "JournalDamaged",
    "JournalUnusable",
    "NewerJournal",
    "Reader",
    "Row",
    "Store",
    "open_reader",
]


NO_ENTRY = Tail()


class Store:
    """A journal that is open for writing, for one thread at a time. After an error the next call tries
    again.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, tail: Tail, salvaged: str) -> None:
        self.path = path
        self.salvaged = salvaged  # what was repaired on opening, for people; empty when nothing was
        self._connection = connection
        self._tail = tail
        self._identity = _identity(path)

    @staticmethod
    def open(path: Path) -> "Store":
        """Opens the journal at `path` for writing; creates it and its folder if missing, repairs it if
        damaged.

        Verifies all of it: about one second for a million entries.
        raises: NewerJournal; JournalUnusable if the folder or the disk cannot be written
        """
        try:
            ready = make_ready(path)
            return Store(path, _connected_for_writing(path), ready.tail, ready.salvaged)
        except (OSError, sqlite3.Error) as error:
            raise unusable(f"the journal {path} cannot be opened", error) from error

    def append(self, rows: Sequence[Row]) -> int:
        """Writes all rows or none. Returns the number of the last one. raises: JournalUnusable"""
        tail, batch = self._tail, list[SealedEntry]()
        for row in rows:
            batch.append(seal(row, tail))
            tail = Tail(*batch[-1][5:])
        if batch:
            self._write(INSERT_ENTRY, batch)
            self._tail = tail
        return tail.seq

    def set_meta(self, key: str, value: bytes) -> None:
        """Sets a metadata value of the job, such as its policy.

        Earlier values stay in the file; the newest is valid.

        raises: JournalUnusable
        """
        key = writable(key)
        self._write(INSERT_META, [(key, value, meta_crc(key, value))])

    def meta(self, key: str) -> bytes | None:
        return self.all_meta().get(key)

    def all_meta(self) -> dict[str, bytes]:
        """Returns all metadata values of the job by key. raises: JournalUnusable"""
        try:
            return read_meta(self._connection)
        except sqlite3.Error as error:
            raise unusable(f"the journal {self.path} cannot be read", error) from error

    def read(self, after_seq: int = 0, *, kinds: Sequence[str] = ()) -> Iterator[Entry]:
        """Yields the entries after number `after_seq` in order, including those appended meanwhile.

        `kinds`: empty for all.

        raises: JournalUnusable
        """
        for raw in self.read_raw(after_seq):
            if not kinds or raw[1] in kinds:
                yield Entry(*raw)

    def read_raw(self, after_seq: int = 0) -> Iterator[RawEntry]:
        """Yields the same entries as read(), but as plain tuples in the order of Entry's fields, which is
        faster.
        """
        try:
            for chunk in sealed_chunks(self._connection, after_seq):
                for entry in chunk:
                    yield entry[:6]
        except sqlite3.Error as error:
            raise unusable(f"the journal {self.path} cannot be read", error) from error

    @property
    def last_seq(self) -> int:
        return self._tail.seq

    def displaced(self) -> bool:
        """Returns whether the path of the journal now has another file, or none, than the one that is open
        here.
        """
        return _identity(self.path) != self._identity

    def vanished(self) -> bool:
        """Returns whether no file is at the journal's path any more, for example because a person removed the
        state folder.
        """
        return _identity(self.path) is None

    def write_anew(self) -> None:
        """Writes the whole open journal to its path again, after the folder was removed.

        The removed file exists until it is closed, so no written entry is lost. Close this store before
        opening the path again: SQLite removes the write-ahead log by its name, and must not remove the log of
        the new file.

        raises: JournalUnusable
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            build(self.path, self._readable(), self.all_meta())
        except (OSError, sqlite3.Error) as error:
            raise unusable(f"the journal {self.path} cannot be written again", error) from error

    def close(self) -> None:
        """Closes the file. Never raises: appended entries are safe without it."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def _readable(self) -> Iterator[RawEntry]:
        with suppress(JournalUnusable):
            yield from self.read_raw()

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise unusable(f"the journal {self.path} cannot be written", error) from error


class Reader:
    """A read-only view of a journal. It never writes.

    It works while a process writes the journal, after one was killed, and in a read-only folder. `damage`:
    describes the damage at which reading ended; empty if there is none.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, copy: TemporaryDirectory[str] | None
    ) -> None:
        self.path = path
        self.damage = ""  # for people: where reading stopped early and why; empty while all is well
        self._connection = connection
        self._copy = copy

    def read(self, after_seq: int = 0, *, kinds: Sequence[str] = ()) -> Iterator[Entry]:
        """Yields the entries after number `after_seq` in order.

        `kinds`: empty for all. Ends at damage, and sets `damage`.
        """
        for raw in self.read_raw(after_seq):
            if not kinds or raw[1] in kinds:
                yield Entry(*raw)

    def read_raw(self, after_seq: int = 0) -> Iterator[RawEntry]:
        """Yields the same entries as read(), but as plain tuples in the order of Entry's fields."""
        try:
            tail = Tail() if after_seq <= 0 else self._tail_at(after_seq)
            if tail is None:
                return  # the journal does not reach that far
            for chunk in sealed_chunks(self._connection, after_seq):
                good, tail = proven(chunk, tail)
                for entry in good:
                    yield entry[:6]
                if len(good) < len(chunk):
                    self.damage = f"{self.path} is damaged after entry {tail.seq}: the rest was not read"
                    return
        except sqlite3.Error as error:
            self.damage = f"{self.path} could not be read to its end: {error}"

    def read_chunks(self, after: Tail = NO_ENTRY) -> Iterator[list[SealedEntry]]:
        """Yields the entries after `after`, each with its checksum, as lists of many entries.

        Ends at the first damaged entry, and then sets `damage`.
        """
        try:
            for chunk in sealed_chunks(self._connection, after.seq):
                good, after = proven(chunk, after)
                if good:
                    yield good
                if len(good) < len(chunk):
                    self.damage = f"{self.path} is damaged after entry {after.seq}: the rest was not read"
                    return
        except sqlite3.Error as error:
            self.damage = f"{self.path} could not be read to its end: {error}"

    def holds(self, tail: Tail) -> bool:
        """Returns whether the journal still contains the entry `tail`, with all entries before it unchanged.

        raises: JournalUnusable
        """
        if not tail.seq:
            return True
        try:
            return self._tail_at(tail.seq) == tail
        except sqlite3.Error as error:
            raise unusable(f"the journal {self.path} cannot be read", error) from error

    def meta(self, key: str) -> bytes | None:
        """Returns one metadata value of the job; None if it is not set. raises: JournalUnusable"""
        return self.all_meta().get(key)

    def all_meta(self) -> dict[str, bytes]:
        """Returns all metadata values of the job by key. raises: JournalUnusable"""
        try:
            return read_meta(self._connection)
        except sqlite3.Error as error:
            raise unusable(f"the journal {self.path} cannot be read", error) from error

    @property
    def last_seq(self) -> int:
        """The number of the last entry; 0 if there is none. raises: JournalUnusable"""
        try:
            (seq,) = self._connection.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()
        except sqlite3.Error as error:
            raise unusable(f"the journal {self.path} cannot be read", error) from error
        return int(seq)

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _tail_at(self, seq: int) -> Tail | None:
        found = self._connection.execute("SELECT seq, chain FROM entries WHERE seq = ?", (seq,)).fetchone()
        return Tail(*found) if found else None


def open_reader(path: Path, *, leaves_nothing: bool = False) -> Reader:
    """Opens an existing journal for reading; a damaged one as far as it can be read.

    `leaves_nothing`: SQLite creates no files beside the journal if no process writes it. Entries of a writer
    that starts later are then not seen, or look damaged: open the journal again once its files have changed.

    raises: NewerJournal, JournalUnusable
    """
    if not path.is_file():
        raise JournalUnusable(f"there is no journal at {path}")
    try:
        try:
            return _reader(
                path, connected(path, "immutable" if leaves_nothing and not _has_log(path) else "ro")
            )
        except (JournalDamaged, sqlite3.DatabaseError) as error:
            return _reader_aside(path, error)
    except (OSError, sqlite3.Error) as error:
        raise unusable(f"the journal {path} cannot be read", error) from error


def _reader_aside(path: Path, error: Exception) -> Reader:
    """Opens a reader that needs only read access to the folder.

    For a folder in which SQLite cannot create its index of the write-ahead log, and for a damaged file.
    raises: OSError, sqlite3.Error
    """
    log = Path(f"{path}-wal")
    no_index = getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    )
    if not (no_index or isinstance(error, JournalDamaged) or is_damage(error)):
        raise error
    if no_index and not _has_log(path):
        return _reader(path, connected(path, "immutable"))
    copy = TemporaryDirectory(prefix="holdfast-journal-")
    try:
        target = Path(copy.name, path.name)
        for source in (path, log):
            if source.exists():
                shutil.copyfile(source, Path(copy.name, source.name))
        ready = make_ready(target)
        reader = _reader(path, connected(target, "ro"), copy)
    except (OSError, sqlite3.Error):
        copy.cleanup()
        raise
    if ready.salvaged:
        reader.damage = f"{path} is damaged: only {'its first entry' if ready.tail.seq == 1 else f'its first {ready.tail.seq} entries'} can be read"
    return reader


def _has_log(path: Path) -> bool:
    """Returns whether a non-empty write-ahead log of SQLite is beside the file."""
    try:
        return Path(f"{path}-wal").stat().st_size > 0
    except OSError:
        return False


def _reader(
    path: Path, connection: sqlite3.Connection, copy: TemporaryDirectory[str] | None = None
) -> Reader:
    """Returns a reader on a connection, after a first query.

    raises: NewerJournal, JournalDamaged, sqlite3.Error
    """
    try:
        check_version(path, read_meta(connection))
        connection.execute("SELECT seq FROM entries LIMIT 1").fetchone()
    except (OSError, sqlite3.Error):
        connection.close()
        raise
    return Reader(path, connection, copy)


def _connected_for_writing(path: Path) -> sqlite3.Connection:
    connection = connected(path, "rw")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        # This refuses a read-only file now, not at the first append. BEGIN alone would accept it.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("PRAGMA user_version = 0")
        connection.execute("ROLLBACK")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns device and inode of the file; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

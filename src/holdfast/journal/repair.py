"""Prepares a journal file for writing: creates it, verifies it, and rebuilds it when damaged.

A damaged file is neither changed nor deleted: the entries that can be verified are copied to a new file, and
the damaged one is kept beside it. A kill at any step is safe: the next opening finishes the repair.
"""

import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct

from holdfast.core.plurals import counted
from holdfast.journal.rows import (
    FILE_HEADER,
    INSERT_ENTRY,
    INSERT_META,
    PAGE_BYTES,
    SCHEMA,
    SCHEMA_VERSION,
    VERSION_KEY,
    JournalDamaged,
    NewerJournal,
    RawEntry,
    SealedEntry,
    Tail,
    chain_of,
    is_damage,
    meta_crc,
)
from holdfast.journal.salvage import Salvage

CHUNK_ROWS = 4096
_BUILDING, _BUILT = ".building", ".built"
_SCHEMA_QUERY = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL"
_ALL = -1  # as a LIMIT
_CHUNK_QUERY = (
    "SELECT at_s, kind, event, orders, why, seq, chain FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"
)


class Ready(Struct, frozen=True):
    """The result of make_ready(): a verified journal file that can be opened for writing.

    `tail`: its last entry. `salvaged`: a message for users about a repair; empty if the file was not damaged.
    """

    tail: Tail
    salvaged: str = ""


def make_ready(path: Path) -> Ready:
    """Creates, verifies or repairs the journal at `path`, so that it can be written.

    raises: NewerJournal; OSError or sqlite3.Error if the disk or the folder does not allow it
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    put_in_place(path)
    if not path.exists() and not _log_of(path).exists():
        build(path, (), {})
        put_in_place(path)
        return Ready(Tail())
    try:
        return Ready(_looked_through(path))
    except (JournalDamaged, sqlite3.DatabaseError) as error:
        if not (isinstance(error, JournalDamaged) or is_damage(error)):
            raise
        return _salvaged(path, str(error))


def build(path: Path, entries: Iterable[RawEntry], meta: Mapping[str, bytes]) -> Tail:
    """Writes a complete journal to a temporary file beside `path`, for put_in_place() to move.

    Returns its last entry. `meta` is read only after all `entries` were consumed: a caller that salvages a
    damaged journal fills it in while it yields the entries.

    raises: NewerJournal; OSError or sqlite3.Error, with the temporary file removed
    """
    target = Path(f"{path}{_BUILDING}")
    _remove(target)
    try:
        tail = _written(target, entries, meta)
        check_version(path, meta)
        with target.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(target, f"{path}{_BUILT}")
    except (OSError, sqlite3.Error):
        _remove(target)
        raise
    return tail


def put_in_place(path: Path) -> Path | None:
    """Moves the journal that build() wrote to `path`, in place of the old journal and its write-ahead log.

    Returns the path to which the old journal was moved; None if there was no old journal.
    """
    built = Path(f"{path}{_BUILT}")
    if not built.exists():
        return None
    kept = _aside(path)
    if path.exists():
        os.replace(path, kept)
    # The log must be removed before the new file is at this path: SQLite would apply it to the new one.
    if _log_of(path).exists():
        os.replace(_log_of(path), _log_of(kept))
    Path(f"{path}-shm").unlink(missing_ok=True)
    os.replace(built, path)
    return kept


def connected(path: Path, mode: str) -> sqlite3.Connection:
    """Opens an SQLite connection without implicit transactions. `mode`: rw, rwc, ro or immutable."""
    how = "mode=ro&immutable=1" if mode == "immutable" else f"mode={mode}"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, check_same_thread=False
    )


def sealed_chunks(connection: sqlite3.Connection, after_seq: int) -> Iterator[list[SealedEntry]]:
    """Yields the entries after number `after_seq`, each with its checksum, as lists of many entries.

    No read transaction stays open between two lists.
    """
    while chunk := connection.execute(_CHUNK_QUERY, (after_seq, CHUNK_ROWS)).fetchall():
        yield chunk
        after_seq = chunk[-1][5]


def proven(chunk: list[SealedEntry], tail: Tail) -> tuple[list[SealedEntry], Tail]:
    """Verifies a chunk of entries whose chain of checksums must continue from the entry `tail`.

    Returns the entries up to the first wrong checksum, and the last of them as the new tail.
    """
    seq, chain, good = tail.seq, tail.chain, 0
    # A damaged page can hold values of other types than the columns.
    with suppress(AttributeError, TypeError, struct.error):
        for at_s, kind, event, orders, why, found_seq, found_chain in chunk:
            if found_seq != seq + 1 or found_chain != chain_of(
                chain, found_seq, at_s, kind, event, orders, why
            ):
                break
            seq, chain, good = found_seq, found_chain, good + 1
    return chunk[:good], Tail(seq, chain)


def read_meta(connection: sqlite3.Connection) -> dict[str, bytes]:
    """Returns the newest value of each metadata key. raises: JournalDamaged"""
    rows = connection.execute("SELECT key, value, crc FROM meta ORDER BY id").fetchall()
    for key, value, crc in rows:
        if not isinstance(key, str) or not isinstance(value, bytes) or crc != meta_crc(key, value):
            raise JournalDamaged(f"the checksum of the value of {key!r} is wrong")
    return {key: value for key, value, _ in rows}


def check_version(path: Path, meta: Mapping[str, bytes]) -> None:
    """Checks that this version of Holdfast knows the version of the journal's format. raises: NewerJournal"""
    version = int(meta.get(VERSION_KEY, b"0"))
    if version > SCHEMA_VERSION:
        raise NewerJournal(path, version)


def _looked_through(path: Path) -> Tail:
    """Verifies a whole journal and returns its last entry. raises: JournalDamaged, sqlite3.Error"""
    if _first_bytes(path) != FILE_HEADER:
        raise JournalDamaged("the file's header is not that of a journal")
    # Read-only, so that closing it does not merge a damaged log into the file.
    with closing(connected(path, "ro")) as connection:
        check_version(path, read_meta(connection))
        if [sql for (sql,) in connection.execute(_SCHEMA_QUERY)] != list(SCHEMA):
            raise JournalDamaged("the tables of the database are not those of a journal")
        tail = _proven_tail(connection)
        (complaint,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if complaint != "ok":
            raise JournalDamaged(complaint)
        with closing(Salvage(path)) as salvage:
            if salvage.log_goes_on_after(tail):
                raise JournalDamaged(f"the write-ahead log is damaged after entry {tail.seq}")
    return tail


def _proven_tail(connection: sqlite3.Connection) -> Tail:
    tail = Tail()
    for chunk in sealed_chunks(connection, after_seq=0):
        good, tail = proven(chunk, tail)
        if len(good) < len(chunk):
            raise JournalDamaged(f"the checksum of the entry after {tail.seq} is wrong")
    return tail


def _salvaged(path: Path, why: str) -> Ready:
    with closing(Salvage(path)) as salvage:
        tail = build(path, _rescued(path, salvage), salvage.meta)
    kept = put_in_place(path)
    text = f"the journal {path} was damaged ({why}): {counted(tail.seq, 'entry was', 'entries were')} saved to a new file"
    if salvage.beyond:
        text += f"; {salvage.beyond} later entries were readable but are dropped, because entries before them are missing"
    return Ready(tail, f"{text}; the damaged file is kept as {kept}")


def _rescued(path: Path, salvage: Salvage) -> Iterator[RawEntry]:
    """Yields the verified entries that SQLite can still read, then those that only the raw file holds."""
    tail = Tail()
    # SQLite removes the log beside an empty file, so it must not open a file without the right header.
    if _first_bytes(path) == FILE_HEADER:
        with suppress(sqlite3.Error), closing(connected(path, "ro")) as connection:
            for entry in connection.execute(_CHUNK_QUERY, (0, _ALL)):
                good, tail = proven([entry], tail)
                if not good:
                    break
                yield entry[:6]
    yield from salvage.entries(tail)


def _written(target: Path, entries: Iterable[RawEntry], meta: Mapping[str, bytes]) -> Tail:
    tail = Tail()
    with closing(connected(target, "rwc")) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = OFF")  # one fsync at the end suffices
        connection.execute("BEGIN")
        for statement in SCHEMA:
            connection.execute(statement)
        for entry in entries:
            chain = chain_of(tail.chain, entry[5], *entry[:5])
            connection.execute(INSERT_ENTRY, (*entry, chain))
            tail = Tail(entry[5], chain)
        for key, value in {**meta, VERSION_KEY: b"%d" % SCHEMA_VERSION}.items():
            connection.execute(INSERT_META, (key, value, meta_crc(key, value)))
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    return tail


def _remove(target: Path) -> None:
    for leftover in ("", "-journal", "-wal", "-shm"):
        Path(f"{target}{leftover}").unlink(missing_ok=True)


def _first_bytes(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(len(FILE_HEADER))


def _aside(path: Path) -> Path:
    """Returns an unused name under which to keep a damaged file.

    A write-ahead log that a kill left without its database gets the name that belongs to that database.
    """
    number = 1
    while Path(f"{path}.damaged-{number}").exists() or Path(f"{path}.damaged-{number}-wal").exists():
        number += 1
    orphan = _log_of(path).exists() and not path.exists() and number > 1
    before = Path(f"{path}.damaged-{number - 1}")
    return before if orphan and not _log_of(before).exists() else Path(f"{path}.damaged-{number}")


def _log_of(path: Path) -> Path:
    return Path(f"{path}-wal")

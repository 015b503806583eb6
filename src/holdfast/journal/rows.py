"""Defines the file format of a journal: rows, errors, tables, and the chain of checksums.

The CRC-32 of every entry covers the entry and the checksum of the entry before it. So damage to any byte is
detected, and a row salvaged from a damaged file can be verified. Never opens or repairs a file.
"""

import sqlite3
from struct import Struct as Packing
from typing import TypeAlias
from zlib import crc32

from msgspec import Struct

SCHEMA_VERSION = 1
VERSION_KEY = "schema-version"  # in the table `meta`, whose columns never change: any version can read it

PAGE_BYTES = 4096
# The start of every journal's first page: SQLite 3, pages of 4096 bytes, WAL for reading and writing.
FILE_HEADER = b"SQLite format 3\0" + PAGE_BYTES.to_bytes(2, "big") + bytes((2, 2, 0, 64, 32, 32))

_REFUSES = "BEGIN SELECT raise(ABORT, 'the journal is append-only'); END"
_CREATE_ENTRIES = (
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL,"
    " event BLOB NOT NULL, orders BLOB NOT NULL, why TEXT NOT NULL, chain INTEGER NOT NULL)"
)
_CREATE_META = (
    "CREATE TABLE meta (id INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB NOT NULL, crc INTEGER NOT NULL)"
)
_TAKE_ONLY_THE_NEXT = (
    "CREATE TRIGGER entries_have_no_gap BEFORE INSERT ON entries"
    " WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries)"
    " BEGIN SELECT raise(ABORT, 'the journal takes entries only at its end'); END"
)
SCHEMA = (
    _CREATE_ENTRIES,
    _CREATE_META,
    _TAKE_ONLY_THE_NEXT,
    f"CREATE TRIGGER entries_stay BEFORE UPDATE ON entries {_REFUSES}",
    f"CREATE TRIGGER entries_are_kept BEFORE DELETE ON entries {_REFUSES}",
    f"CREATE TRIGGER meta_stays BEFORE UPDATE ON meta {_REFUSES}",
    f"CREATE TRIGGER meta_is_kept BEFORE DELETE ON meta {_REFUSES}",
)
INSERT_ENTRY = "INSERT INTO entries (at_s, kind, event, orders, why, seq, chain) VALUES (?, ?, ?, ?, ?, ?, ?)"
INSERT_META = "INSERT INTO meta (key, value, crc) VALUES (?, ?, ?)"

RawEntry: TypeAlias = tuple[float, str, bytes, bytes, str, int]  # the fields of Entry, in its order
SealedEntry: TypeAlias = tuple[float, str, bytes, bytes, str, int, int]  # a RawEntry and its checksum

_HEAD = Packing("<qdII")


class Row(Struct, frozen=True):
    """One event of a job and the controller's decision on it, before it is in the journal.

    `at_s`: time on the job's clock. `event`, `orders`: JSON. `why`: the reason for the decision, for users.
    """

    at_s: float
    kind: str
    event: bytes
    orders: bytes
    why: str


class Entry(Row, frozen=True):
    """A row in the journal. `seq`: its number, counted from 1 without a gap."""

    seq: int


class Tail(Struct, frozen=True):
    """The number and checksum of a journal's last entry, from which the next entry's checksum continues."""

    seq: int = 0
    chain: int = 0


class JournalUnusable(OSError):
    """Raised when the journal cannot be opened, read or written at the moment; a later try may succeed."""


class JournalDamaged(JournalUnusable):
    """Raised when the journal's file is damaged. Opening it again for writing repairs it."""


class NewerJournal(JournalUnusable):
    """Raised when a newer version of Holdfast wrote the journal, which is then not changed."""

    def __init__(self, path: object, version: int) -> None:
        super().__init__(
            f"{path} has journal version {version}, this Holdfast knows versions up to {SCHEMA_VERSION}: "
            "use the newer Holdfast, or choose another job name or state folder"
        )


def chain_of(before: int, seq: int, at_s: float, kind: str, event: bytes, orders: bytes, why: str) -> int:
    """Computes the checksum of an entry from its fields and its predecessor's checksum `before` (0 for the
    first).
    """
    head = _HEAD.pack(seq, at_s, len(event), len(orders))
    return crc32(b"".join((head, event, orders, kind.encode(), b"\0", why.encode())), before)


def seal(row: Row, before: Tail) -> SealedEntry:
    """Returns the row as it is stored after the entry `before`, with its number and checksum."""
    # Adding 0.0 turns -0.0 into 0.0, as SQLite does. SQLite has no NaN, and a row must not be lost because of one.
    at_s = row.at_s + 0.0 if row.at_s == row.at_s else 0.0
    kind, why, seq = writable(row.kind), writable(row.why), before.seq + 1
    chain = chain_of(before.chain, seq, at_s, kind, row.event, row.orders, why)
    return at_s, kind, row.event, row.orders, why, seq, chain


def writable(text: str) -> str:
    """Returns the text with lone surrogates escaped, because SQLite refuses them.

    They stand for bytes of a log that were not valid UTF-8.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def meta_crc(key: str, value: bytes) -> int:
    """Computes the checksum of a metadata value and its key."""
    return crc32(value, crc32(key.encode() + b"\0"))


def unusable(what: str, error: Exception) -> JournalUnusable:
    """Converts an error of SQLite or the disk to JournalUnusable, or to JournalDamaged if the content is
    damaged.

    `what`: the operation that failed, for the message.
    """
    if isinstance(error, JournalUnusable):
        return error
    kind = JournalDamaged if is_damage(error) else JournalUnusable
    return kind(f"{what}: {error}")


_DAMAGE = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_EMPTY,
}
_DAMAGE_IN_READING = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ}


def is_damage(error: Exception) -> bool:
    """Returns whether an SQLite error shows damaged content of the file, rather than a disk, lock or
    permission problem.
    """
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # absent: text that is not UTF-8
    return code & 0xFF in _DAMAGE or code in _DAMAGE_IN_READING

"""The node book: what is known of a fleet's nodes over all jobs, in one SQLite file that many processes write.

    <fleet folder>/nodes.db        lines, where attempts ran, which nodes are isolated
    <fleet folder>/isolated.json   the isolated nodes once more, for when nodes.db is lost
    <fleet folder>/nodes.db.damaged-<time>   a file that could not be read, set aside

Every method is one short transaction. On a local disk the file is in WAL mode; on one that other machines may see,
and wherever that is not known, SQLite's rollback journal is used, which locks by fcntl alone. A damaged file is set
aside and a new one begun, with the isolated nodes from `isolated.json`. Whatever waits or fails raises NodeBookUnusable:
that a run does not wait for it is the matter of `fleet_book`.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.core.checks.storage import mount_of, parse_mounts
from holdfast.core.nodes.isolation_limit import IsolationLimit, why_not
from holdfast.journal.rows import is_damage, writable
from holdfast.model.nodes.book import (
    AnyLine,
    AttemptRan,
    DeviceLine,
    HeldBackLine,
    Isolation,
    IsolationAnswer,
    IsolationLine,
    ReleaseLine,
)

FILE, BACKUP, LOCK = "nodes.db", "isolated.json", "lock"
VERSION = 1
DAY_S = 86_400.0
ATTEMPTS_KEPT_S = 120 * DAY_S  # where attempts ran, after their end
LINES_KEPT_S = 730 * DAY_S  # but isolations, releases and repairs: for good
NODE_KNOWN_S = 30 * DAY_S  # a node of which nothing was written for so long is no longer one of the fleet's
BUSY_S = 5.0  # how long a transaction waits for the others' to end
# On these SQLite's shared memory index of WAL works: one machine alone sees them.
LOCAL_DISKS = frozenset("ext2 ext3 ext4 xfs btrfs tmpfs ramfs overlay zfs f2fs bcachefs reiserfs jfs".split())
SCHEMA = """
CREATE TABLE IF NOT EXISTS lines(
    id INTEGER PRIMARY KEY, key TEXT UNIQUE, at_s REAL NOT NULL, node TEXT NOT NULL, serial TEXT NOT NULL,
    kind TEXT NOT NULL, run TEXT NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS lines_of_node ON lines(node, at_s);
CREATE INDEX IF NOT EXISTS lines_of_serial ON lines(serial, at_s) WHERE serial != '';
CREATE INDEX IF NOT EXISTS lines_of_kind ON lines(kind, at_s);
CREATE TABLE IF NOT EXISTS attempts(
    run TEXT NOT NULL, attempt INTEGER NOT NULL, started_s REAL NOT NULL, hours REAL NOT NULL, nodes BLOB NOT NULL,
    PRIMARY KEY (run, attempt)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS nodes(node TEXT PRIMARY KEY, seen_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS isolated(
    node TEXT PRIMARY KEY, since_s REAL NOT NULL, reason TEXT NOT NULL, by TEXT NOT NULL, run TEXT NOT NULL
    ) WITHOUT ROWID;
"""
_LINE: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)
_NODES = msgspec.json.Decoder(tuple[str, ...])
_ISOLATED = msgspec.json.Decoder(list[Isolation])
_encode = msgspec.json.Encoder().encode
_Answer = TypeVar("_Answer")


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # what decoding any bytes can raise


class NodeBookUnusable(OSError):
    """The book cannot be opened, read or written now. It may work later."""


class NewerNodeBook(NodeBookUnusable):
    """A newer Holdfast wrote it; it is left as it is."""


class NodeBook:
    """One process's way to the book. For one thread. Opens the file when it is first needed, and again after trouble."""

    def __init__(
        self, folder: Path, *, busy_s: float = BUSY_S, read_only: bool = False, shared: bool = False
    ) -> None:
        """`shared`: other machines write it too, whatever the disk looks like here."""
        self.folder, self.path, self._shared = folder, folder / FILE, shared
        self.notes: list[
            str
        ] = []  # what people should know: a damaged file was set aside. Taken by whoever says it
        self._busy_s, self._read_only = busy_s, read_only
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    # Writing ------------------------------------------------------------------------------------------------

    def note(self, lines: Sequence[tuple[str, AnyLine]], ran: Iterable[AttemptRan] = ()) -> None:
        """Writes the lines, each under its key: the same key again replaces what it was. All or none.

        raises: NodeBookUnusable
        """

        def write(connection: sqlite3.Connection) -> None:
            for key, line in lines:
                _insert(connection, key, line)
            for one in ran:
                _insert_ran(connection, one)

        self._transact(write)

    def isolate(
        self, wanted: Isolation, *, limit: IsolationLimit | None = None, nodes: int = 0
    ) -> IsolationAnswer:
        """Isolates the node for all jobs, unless too many were within the hour. Without a `limit`: a person's word.

        Counted and written in one transaction, so that jobs that want it at the same time are held to one limit.
        `nodes`: how many the job has, where the book may not know them yet. raises: NodeBookUnusable
        """

        def write(connection: sqlite3.Connection) -> IsolationAnswer:
            if connection.execute("SELECT 1 FROM isolated WHERE node = ?", (wanted.node,)).fetchone():
                return IsolationAnswer(True)
            if limit is not None:
                refused = _refusal(connection, wanted, limit, nodes)
                if refused:
                    held = HeldBackLine(
                        at_s=wanted.since_s, node=wanted.node, reason=refused, by=wanted.by, run=wanted.run
                    )
                    _insert(connection, f"held-back/{wanted.run}/{wanted.node}", held)
                    return IsolationAnswer(False, refused)
            self._isolate(connection, wanted)
            return IsolationAnswer(True)

        return self._transact(write)

    def release(self, line: ReleaseLine) -> bool:
        """Gives the node back. False: it was not isolated. raises: NodeBookUnusable"""

        def write(connection: sqlite3.Connection) -> bool:
            gone = connection.execute("DELETE FROM isolated WHERE node = ?", (line.node,)).rowcount
            if not gone:
                return False
            _insert(connection, f"release/{line.node}/{line.at_s!r}", line)
            self._keep_backup(connection)
            return True

        return self._transact(write)

    # Reading ------------------------------------------------------------------------------------------------

    def isolated(self) -> dict[str, Isolation]:
        """The nodes that are not to be used. raises: NodeBookUnusable"""
        return {one.node: one for one in self._read(_all_isolated)}

    def lines(self, node: str = "", *, since_s: float = 0.0, kinds: Sequence[str] = ()) -> list[AnyLine]:
        """In order of time. `node`: of this node, or of the device with this serial; empty: all.

        What concerns all nodes of an attempt has no node of its own, and is among those of no node.
        raises: NodeBookUnusable
        """
        query = "SELECT body FROM lines WHERE at_s >= ?"
        values: list[object] = [since_s]
        if node:
            query, values = f"{query} AND (node = ? OR serial = ?)", [*values, node, node]
        if kinds:
            query, values = f"{query} AND kind IN ({','.join('?' * len(kinds))})", [*values, *kinds]

        def read(connection: sqlite3.Connection) -> list[AnyLine]:
            rows = connection.execute(f"{query} ORDER BY at_s, id", values)
            return [line for row in rows if (line := _line(row[0])) is not None]

        return self._read(read)

    def attempts(self, since_s: float = 0.0) -> list[AttemptRan]:
        """Those that still ran at `since_s` or later, in order of their start. raises: NodeBookUnusable"""

        def read(connection: sqlite3.Connection) -> list[AttemptRan]:
            rows = connection.execute(
                "SELECT run, attempt, started_s, hours, nodes FROM attempts"
                " WHERE started_s + hours * 3600 >= ? ORDER BY started_s, run, attempt",
                (since_s,),
            )
            return [
                AttemptRan(run=run, attempt=attempt, started_s=at_s, hours=hours, nodes=_NODES.decode(nodes))
                for run, attempt, at_s, hours, nodes in rows
            ]

        return self._read(read)

    def devices(self) -> dict[str, DeviceLine]:
        """By serial number: where each device was seen last. raises: NodeBookUnusable"""
        lines = self.lines(kinds=("device",))
        return {line.serial: line for line in lines if isinstance(line, DeviceLine)}

    def nodes(self) -> dict[str, float]:
        """All nodes that are known of, and when something was last written of them. raises: NodeBookUnusable"""
        return self._read(lambda connection: dict(connection.execute("SELECT node, seen_s FROM nodes")))

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    # Inside ------------------------------------------------------------------------------------------------

    def _isolate(self, connection: sqlite3.Connection, wanted: Isolation) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO isolated VALUES (?, ?, ?, ?, ?)",
            tuple(map(_plain, (wanted.node, wanted.since_s, wanted.reason, wanted.by, wanted.run))),
        )
        line = IsolationLine(
            at_s=wanted.since_s, node=wanted.node, reason=wanted.reason, by=wanted.by, run=wanted.run
        )
        _insert(connection, f"isolation/{wanted.node}/{wanted.since_s!r}", line)
        self._keep_backup(connection)

    def _keep_backup(self, connection: sqlite3.Connection) -> None:
        """Inside the transaction, so that no other writer comes between. A crash before its end leaves the newer list,
        which is true again with the next change. A disk without room for it must not keep a node from being isolated.
        """
        try:
            _write_whole(self.folder / BACKUP, _encode(_all_isolated(connection)))
        except OSError as error:
            self.notes.append(
                f"{self.folder / BACKUP}, the copy of what is isolated, cannot be written: {error}"
            )

    def _transact(self, write: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        def whole(connection: sqlite3.Connection) -> _Answer:
            connection.execute("BEGIN IMMEDIATE")
            try:
                answer = write(connection)
                connection.execute("COMMIT")
                return answer
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        return self._read(whole)

    def _read(self, ask: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        try:
            try:
                return ask(self._opened())
            except (sqlite3.Error, *_UNREADABLE) as error:
                if self._read_only or not _is_damaged(error):
                    raise
                self._begin_anew(error)
                return ask(self._opened())
        except NodeBookUnusable:
            self.close()
            raise
        except (OSError, sqlite3.Error, *_UNREADABLE) as error:
            self.close()
            raise NodeBookUnusable(f"the node book {self.path} cannot be used: {_words(error)}") from error

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that stands at the path now. raises: OSError, sqlite3.Error"""
        if self._connection is not None and self._identity == _identity(self.path):
            return self._connection
        self.close()
        # Before it is opened: what is found damaged is this file, or one that has taken its place already.
        self._identity = _identity(self.path)
        self._connection = self._for_reading() if self._read_only else self._for_writing()
        return self._connection

    def _for_reading(self) -> sqlite3.Connection:
        if not self.path.exists():
            return _connected(":memory:", self._busy_s, SCHEMA)
        with_log = Path(f"{self.path}-wal")
        alone = not os.access(self.folder, os.W_OK) and not (with_log.exists() and with_log.stat().st_size)
        connection = _connected(
            f"{self.path.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}", self._busy_s
        )
        _refuse_newer(self.path, connection)
        return connection

    def _for_writing(self) -> sqlite3.Connection:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            connection = self._standing()
        except (OSError, sqlite3.OperationalError):
            if self._identity is not None and _identity(self.path) == self._identity:
                raise
            connection = self._standing_or_new()  # there was none, or another process sets it aside just now
        try:
            _refuse_newer(self.path, connection)
            mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
            if mode == "wal" and (self._shared or not is_local(self.folder)):
                connection.execute("PRAGMA journal_mode = DELETE")  # made on another disk, and moved here
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        except (OSError, sqlite3.Error):
            connection.close()
            raise
        return connection

    def _standing(self) -> sqlite3.Connection:
        return _connected(self.path.absolute().as_uri() + "?mode=rw", self._busy_s)

    def _standing_or_new(self) -> sqlite3.Connection:
        with _locked(self.folder):
            if not self.path.exists():
                self._create()
            self._identity = _identity(self.path)
            return self._standing()

    def _create(self) -> None:
        """A new file, whole before it has its name. The isolated nodes of one that was lost are in it."""
        building = self.folder / f"{FILE}.building"
        for leftover in (
            building,
            Path(f"{building}-wal"),
            Path(f"{building}-shm"),
            Path(f"{building}-journal"),
        ):
            leftover.unlink(missing_ok=True)
        connection = _connected(str(building.absolute()), self._busy_s, SCHEMA)
        try:
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("BEGIN IMMEDIATE")
            kept = _kept(self.folder)
            for one in kept:
                connection.execute(
                    "INSERT INTO isolated VALUES (?, ?, ?, ?, ?)",
                    tuple(map(_plain, (one.node, one.since_s, one.reason, one.by, one.run))),
                )
                line = IsolationLine(
                    at_s=one.since_s, node=one.node, reason=one.reason, by=one.by, run=one.run
                )
                _insert(connection, f"isolation/{one.node}/{one.since_s!r}", line)
            connection.execute("COMMIT")
            if not self._shared and is_local(self.folder):
                connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()  # moves its log into the file
        os.replace(building, self.path)
        if kept:
            names = ", ".join(sorted(one.node for one in kept)[:8])
            self.notes.append(
                f"a new node book was begun in {self.folder}; still isolated, by {BACKUP}: {names}"
            )

    def _begin_anew(self, error: Exception) -> None:
        """Sets the damaged file aside, unless another process has meanwhile. raises: OSError"""
        seen, text = self._identity, _words(error)
        self.close()
        with _locked(self.folder):
            if _identity(self.path) != seen:
                return
            # Named by its inode: no clock is needed, and no two of them can be the same at one time.
            aside = _free_name(self.path, seen[1] if seen else 0)
            for ending in ("-wal", "-shm", "-journal"):
                with suppress(FileNotFoundError):
                    os.replace(f"{self.path}{ending}", f"{aside}{ending}")
            with suppress(FileNotFoundError):
                os.replace(self.path, aside)
            self.notes.append(
                f"the node book {self.path} is damaged ({text}): set aside as {aside.name}, a new one is begun"
            )
            self._create()


def is_local(folder: Path) -> bool:
    """Whether the folder's disk is seen by this machine alone, as far as its type tells."""
    try:
        mounts = parse_mounts(Path("/proc/self/mountinfo").read_text(errors="replace"))
    except OSError:
        return False
    mount = mount_of(os.path.realpath(folder), mounts)
    return mount is not None and mount.kind in LOCAL_DISKS


# Rows -------------------------------------------------------------------------------------------------------


def _insert(connection: sqlite3.Connection, key: str, line: AnyLine) -> None:
    at_s = line.at_s if line.at_s == line.at_s else 0.0
    if isinstance(line, DeviceLine):
        line = _with_first(connection, key, line)
    run = getattr(line, "run", "")
    kind = str(type(line).__struct_config__.tag)
    connection.execute(
        "INSERT INTO lines(key, at_s, node, serial, kind, run, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(key) DO UPDATE SET at_s = excluded.at_s, node = excluded.node, serial = excluded.serial,"
        " kind = excluded.kind, run = excluded.run, body = excluded.body",
        (writable(key), at_s, writable(line.node), writable(line.serial), kind, writable(run), _encode(line)),
    )
    if line.node:
        _seen(connection, (line.node,), at_s)


def _with_first(connection: sqlite3.Connection, key: str, line: DeviceLine) -> DeviceLine:
    """With when it was first seen there, unless it has been in another node since."""
    query = (
        "SELECT key, body FROM lines WHERE serial = ? AND kind = 'device' ORDER BY at_s DESC, id DESC LIMIT 1"
    )
    row = connection.execute(query, (writable(line.serial),)).fetchone()
    before = _line(row[1]) if row is not None and row[0] == writable(key) else None
    return replace(line, since_s=before.since_s) if isinstance(before, DeviceLine) else line


def _insert_ran(connection: sqlite3.Connection, ran: AttemptRan) -> None:
    if not ran.hours:
        _forget_old(connection, ran.started_s)  # once for each attempt
    connection.execute(
        "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?)",
        (writable(ran.run), ran.attempt, ran.started_s, max(0.0, ran.hours), _encode(ran.nodes)),
    )
    _seen(connection, ran.nodes, ran.started_s + ran.hours * 3600)


def _forget_old(connection: sqlite3.Connection, now_s: float) -> None:
    connection.execute("DELETE FROM attempts WHERE started_s + hours * 3600 < ?", (now_s - ATTEMPTS_KEPT_S,))
    connection.execute(
        "DELETE FROM lines WHERE at_s < ? AND kind NOT IN ('isolation', 'release', 'repair')",
        (now_s - LINES_KEPT_S,),
    )


def _seen(connection: sqlite3.Connection, nodes: Iterable[str], at_s: float) -> None:
    connection.executemany(
        "INSERT INTO nodes VALUES (?, ?) ON CONFLICT(node) DO UPDATE SET seen_s = max(seen_s, excluded.seen_s)",
        [(writable(node), at_s) for node in nodes],
    )


def _refusal(connection: sqlite3.Connection, wanted: Isolation, limit: IsolationLimit, nodes: int) -> str:
    """By what jobs isolated of late; what a person isolated, or released since, counts too: it is out of use, or was."""
    recent = dict(
        connection.execute(
            "SELECT node, max(at_s) FROM lines WHERE kind = 'isolation' AND at_s > ? GROUP BY node",
            (wanted.since_s - limit.window_s,),
        )
    )
    (known,) = connection.execute(
        "SELECT count(*) FROM nodes WHERE seen_s > ?", (wanted.since_s - NODE_KNOWN_S,)
    ).fetchone()
    return why_not(wanted.node, wanted.since_s, recent, max(int(known), nodes), limit)


def _all_isolated(connection: sqlite3.Connection) -> list[Isolation]:
    rows = connection.execute("SELECT node, since_s, reason, by, run FROM isolated ORDER BY since_s, node")
    return [Isolation(node=row[0], since_s=row[1], reason=row[2], by=row[3], run=row[4]) for row in rows]


def _line(body: bytes) -> AnyLine | None:
    """None: of a kind that this version does not know."""
    try:
        return _LINE.decode(body)
    except msgspec.ValidationError:
        return None


def _plain(value: object) -> object:
    return writable(value) if isinstance(value, str) else value


# The file ---------------------------------------------------------------------------------------------------


def _connected(where: str, busy_s: float, schema: str = "") -> sqlite3.Connection:
    connection = sqlite3.connect(
        where, timeout=busy_s, isolation_level=None, check_same_thread=False, uri=where.startswith("file:")
    )
    if schema:
        connection.executescript(schema)
    return connection


def _refuse_newer(path: Path, connection: sqlite3.Connection) -> None:
    """raises: NewerNodeBook; sqlite3.Error"""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise NewerNodeBook(
            f"{path} has version {version}, this Holdfast knows versions up to {VERSION}: use the newer Holdfast, "
            "or another --fleet-dir"
        )


def _is_damaged(error: Exception) -> bool:
    """Whether the file's content is at fault. A body that is no JSON at all was not written so."""
    return isinstance(error, (msgspec.DecodeError, UnicodeDecodeError, RecursionError)) or is_damage(error)


def _words(error: Exception) -> str:
    if "locked" in str(error):
        return "others have been writing it for too long, or its lock is stuck"
    return str(error)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _free_name(path: Path, number: int) -> Path:
    tries = (Path(f"{path}.damaged-{number}{f'-{again}' if again else ''}") for again in range(10_000))
    return next(one for one in tries if not one.exists())


def _kept(folder: Path) -> Sequence[Isolation]:
    try:
        return _ISOLATED.decode((folder / BACKUP).read_bytes())
    except (OSError, *_UNREADABLE):
        return ()


def _write_whole(path: Path, content: bytes) -> None:
    """raises: OSError"""
    building = path.with_name(path.name + ".building")
    with open(building, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(building, path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Among all processes that begin a book here; where the disk knows no locks, without. raises: OSError"""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

"""Opens, creates and replaces the SQLite file of the node book.

A damaged file is renamed, and a new one is created with the isolated nodes of the backup `isolated.json`.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.core.checks.io import mount_of, parse_mounts
from holdfast.journal.nodes.rows import SCHEMA, put_isolated
from holdfast.journal.rows import is_damage
from holdfast.model.nodes.book import (
    Isolation,
)

FILE, BACKUP, LOCK = "nodes.db", "isolated.json", "lock"
VERSION = 1
BUSY_S = 5.0  # how long a transaction waits for those of other processes
# File systems that only one machine can use, so that SQLite's shared-memory index of the WAL works.
LOCAL_DISKS = frozenset("ext2 ext3 ext4 xfs btrfs tmpfs ramfs overlay zfs f2fs bcachefs reiserfs jfs".split())
_ISOLATED = msgspec.json.Decoder(list[Isolation])
_Answer = TypeVar("_Answer")


UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # what decoding any bytes can raise


class NodeBookUnusable(OSError):
    """Raised when the node book cannot be opened, read or written at the moment; a later try may succeed."""


class NewerNodeBook(NodeBookUnusable):
    """Raised when a newer version of Holdfast wrote the file, which is then not changed."""


class NodeBookFile:
    """One process's connection to the SQLite file of the node book, for a single thread.

    The file is opened on first use, and again after an error.

    `shared`: True if other machines write the file too, even if the disk looks local. `notes`: messages for
    users, such as that a damaged file was replaced; the caller shows and clears them.
    """

    def __init__(self, folder: Path, *, busy_s: float, read_only: bool, shared: bool) -> None:
        self.folder, self.path, self._shared = folder, folder / FILE, shared
        self.notes: list[str] = []
        self._busy_s, self._read_only = busy_s, read_only
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def ask(self, ask: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        try:
            try:
                return ask(self._opened())
            except (sqlite3.Error, *UNREADABLE) as error:
                if self._read_only or not _is_damaged(error):
                    raise
                self._begin_anew(error)
                return ask(self._opened())
        except NodeBookUnusable:
            self.close()
            raise
        except (OSError, sqlite3.Error, *UNREADABLE) as error:
            self.close()
            raise NodeBookUnusable(f"the node book {self.path} cannot be used: {_words(error)}") from error

    def _opened(self) -> sqlite3.Connection:
        """Returns the connection to the file that is at the path now. raises: OSError, sqlite3.Error"""
        if self._connection is not None and self._identity == _identity(self.path):
            return self._connection
        self.close()
        # Before it is opened: if damage is found, the file is this one, or one that has already replaced it.
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
            connection = self._standing_or_new()  # there was none, or another process is replacing it
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
        """Creates the file under another name, with the isolated nodes of the backup, then renames it."""
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
                put_isolated(connection, one)
            connection.execute("COMMIT")
            if not self._shared and is_local(self.folder):
                connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()  # moves its log into the file
        os.replace(building, self.path)
        if kept:
            names = ", ".join(sorted(isolation.node for isolation in kept)[:8])
            self.notes.append(
                f"created a new node book in {self.folder}; still isolated, by {BACKUP}: {names}"
            )

    def _begin_anew(self, error: Exception) -> None:
        """Renames the damaged file and creates a new one, unless another process already has.

        raises: OSError
        """
        seen, text = self._identity, _words(error)
        self.close()
        with _locked(self.folder):
            if _identity(self.path) != seen:
                return
            # Named by its inode, which is unique and needs no clock.
            aside = _free_name(self.path, seen[1] if seen else 0)
            for ending in ("-wal", "-shm", "-journal"):
                with suppress(FileNotFoundError):
                    os.replace(f"{self.path}{ending}", f"{aside}{ending}")
            with suppress(FileNotFoundError):
                os.replace(self.path, aside)
            self.notes.append(
                f"the node book {self.path} is damaged ({text}): renamed to {aside.name}; a new one is created"
            )
            self._create()


def is_local(folder: Path) -> bool:
    """Returns whether the folder is on a disk that only this machine uses, judged by the type of its file
    system.
    """
    try:
        mounts = parse_mounts(Path("/proc/self/mountinfo").read_text(errors="replace"))
    except OSError:
        return False
    mount = mount_of(os.path.realpath(folder), mounts)
    return mount is not None and mount.kind in LOCAL_DISKS


def _connected(where: str, busy_s: float, schema: str = "") -> sqlite3.Connection:
    connection = sqlite3.connect(
        where, timeout=busy_s, isolation_level=None, check_same_thread=False, uri=where.startswith("file:")
    )
    if schema:
        connection.executescript(schema)
    return connection


def _refuse_newer(path: Path, connection: sqlite3.Connection) -> None:
    """Checks that this version of Holdfast can write the file. raises: NewerNodeBook, sqlite3.Error"""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise NewerNodeBook(
            f"{path} has version {version}, this Holdfast knows versions up to {VERSION}: use the newer Holdfast, "
            "or another --fleet-dir"
        )


def _is_damaged(error: Exception) -> bool:
    """Returns whether the error shows damaged content of the file; a value that is not JSON counts too."""
    return isinstance(error, (msgspec.DecodeError, UnicodeDecodeError, RecursionError)) or is_damage(error)


def _words(error: Exception) -> str:
    if "locked" in str(error):
        return "other processes hold the lock of the node book for too long, or the lock is stale"
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
    except (OSError, *UNREADABLE):
        return ()


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file atomically: after a crash the file has either its old or its new content. raises:
    OSError
    """
    building = path.with_name(path.name + ".building")
    with open(building, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(building, path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks the fleet folder against other processes that create a node book, if the disk supports locks.
    raises: OSError
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

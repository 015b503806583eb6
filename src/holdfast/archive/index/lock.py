"""Provides a lock that allows one server at a time to write an index; other servers read it and follow its
changes.
"""

import fcntl
import os
import zlib
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from holdfast.archive.index.database import Database, IndexUnusable

LOCK_NAME = "index.lock"
_CLASS = 0x686F6C64  # namespace of the advisory locks in PostgreSQL: "hold"


class WriterLock:
    """The lock of the writing server. It is held until `release` or the end of the process."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._connection: Connection | None = None

    def take_file(self, folder: Path) -> bool:
        """Acquires the file lock. Returns False if another process holds it. Raises IndexUnusable.

        Returns True on a disk without support for locks.
        """
        if self._descriptor is not None:
            return True
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise IndexUnusable(
                f"the folder of the index, {folder}, cannot be written: {error.strerror}; "
                "choose another database with --database"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            pass
        self._descriptor = descriptor
        return True

    def take_in(self, database: Database) -> bool:
        """Acquires an advisory lock in PostgreSQL, valid for all servers of this database.

        Raises SQLAlchemyError.
        """
        if self._connection is not None:
            return self.is_held()
        connection = database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            key = zlib.crc32((database.engine.url.database or "").encode()) & 0x7FFFFFFF
            taken = connection.execute(
                text("SELECT pg_try_advisory_lock(:class, :key)"), {"class": _CLASS, "key": key}
            ).scalar_one()
        except SQLAlchemyError:
            connection.close()
            raise
        if not taken:
            connection.close()
            return False
        self._connection = connection
        return True

    def is_held(self) -> bool:
        """Returns True if the lock is held. PostgreSQL releases a lock when its connection is lost."""
        if self._connection is None:
            return self._descriptor is not None
        try:
            self._connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            self.release()
            return False
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.invalidate()  # keeps the connection that has the lock out of the pool
                self._connection.close()
            self._connection = None

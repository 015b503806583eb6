"""Opens the database of the index: a SQLite file in the state folder, or PostgreSQL by URL.

The database is built from journals, so a damaged file is deleted and rebuilt. A database of a later version,
or one that cannot be opened, stays unchanged. Every error is raised as IndexUnusable: one line that names the
remedy.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from holdfast.archive.index.tables import FACTS, METADATA, SCHEMA
from holdfast.journal.nodes.file import is_local
from holdfast.journal.rows import is_damage

BUSY_S = 5.0
CONNECTIONS_MAX = 8
STATEMENT_S = 30.0  # PostgreSQL cancels a query that takes longer
MIGRATE = "holdfast.archive.index.migrate"  # imported on demand, because Alembic takes 12 MiB and 0.2 s
_VERSION = text("SELECT version_num FROM alembic_version")
# As Alembic creates its own table.
_CREATE_VERSION = text(
    "CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
_SET_VERSION = text("INSERT INTO alembic_version (version_num) VALUES (:version)")
_MIGRATION_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('holdfast-index-migration'))")


class IndexUnusable(Exception):
    """Raised when the index cannot be opened, read or written now.

    The message is one line: what failed and what to do.
    """


class NewerIndex(IndexUnusable):
    """Raised when a later version of Holdfast created the database, which then stays unchanged."""


class OlderIndex(IndexUnusable):
    """Raised when the tables have an earlier version, and this process may not change them."""


class Database:
    """An open database with the tables of the index. Thread-safe."""

    def __init__(self, engine: Engine, path: Path | None, notes: list[str]) -> None:
        self.engine = engine
        self.path = path  # of the SQLite file; None: PostgreSQL
        self.notes = notes  # messages about repairs made on opening
        self._identity = _identity(path)

    @property
    def name(self) -> str:
        """Returns the name of the database for messages, without its password."""
        return str(self.path) if self.path is not None else self.engine.url.render_as_string()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Opens a connection for reading. Raises IndexUnusable."""
        with _translated(f"the index {self.name} cannot be read"), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Opens a write transaction. Raises IndexUnusable."""
        options = {"holdfast_write": True}
        with (
            _translated(f"the index {self.name} cannot be written"),
            self.engine.execution_options(**options).begin() as connection,
        ):
            yield connection

    def facts(self) -> dict[str, str]:
        """Returns all facts about the index (key -> value), such as its version. Raises IndexUnusable."""
        with self.reading() as connection:
            return {key: value for key, value in connection.execute(select(FACTS.c.key, FACTS.c.value))}

    def set_facts(self, facts: dict[str, str]) -> None:
        """Stores facts about the index. Raises IndexUnusable."""
        with self.writing() as connection:
            connection.execute(FACTS.delete().where(FACTS.c.key.in_(list(facts))))
            connection.execute(insert(FACTS), [{"key": key, "value": facts[key]} for key in facts])

    def displaced(self) -> bool:
        """Returns True if the file at the path is no longer the open one, because it was removed or
        replaced.
        """
        return self.path is not None and _identity(self.path) != self._identity

    def size_bytes(self) -> int | None:
        """Returns the size of the database in bytes; None if unknown."""
        if self.path is None:
            with suppress(IndexUnusable), self.reading() as connection:
                return int(
                    connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
                )
            return None
        return sum(size for part in ("", "-wal") if (size := _size_bytes(Path(f"{self.path}{part}"))))

    def close(self) -> None:
        with suppress(SQLAlchemyError):
            self.engine.dispose()


def open_database(url: str | Path, *, may_change: bool) -> Database:
    """Opens the database and returns it. Raises IndexUnusable, NewerIndex or OlderIndex.

    `url`: a path for SQLite, otherwise an SQLAlchemy URL. `may_change`: allows it to create or migrate
    tables, and to rebuild a damaged file.
    """
    place = URL.create("sqlite", database=str(url)) if isinstance(url, Path) else _parsed(url)
    path = Path(place.database or "") if place.get_backend_name() == "sqlite" else None
    if path is not None and not may_change and not path.exists():
        raise OlderIndex(f"there is no index at {path} yet")
    try:
        return _opened(place, path, [], may_change=may_change)
    except _DamagedIndex as error:
        assert path is not None, "only a file can be damaged"
        if not may_change:
            raise IndexUnusable(
                f"the index {path} is damaged ({error}); the server that writes it rebuilds it"
            ) from error
        _remove(path)
        note = f"the index {path} was damaged ({error}); Holdfast rebuilds it from the journals"
        return _opened(place, path, [note], may_change=True)


class _DamagedIndex(Exception):
    """Error: the file is damaged or is no database."""


def _opened(place: URL, path: Path | None, notes: list[str], *, may_change: bool) -> Database:
    if path is not None and may_change:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise IndexUnusable(
                f"the folder of the index, {path.parent}, cannot be created: {error}"
            ) from error
    database = Database(_engine(place, path), path, notes)
    try:
        with _translated(f"the index {database.name} cannot be opened"):
            _bring_up_to_date(database, may_change=may_change)
    except IndexUnusable as error:
        database.close()
        cause = error.__cause__
        if path is not None and isinstance(cause, DBAPIError) and is_damage(cause.orig or cause):
            raise _DamagedIndex(_short(cause)) from error
        raise
    database._identity = _identity(path)
    return database


def _bring_up_to_date(database: Database, *, may_change: bool) -> None:
    version = _version(database)
    if version == SCHEMA:
        return
    if version is not None and version > SCHEMA:
        raise NewerIndex(
            f"the index {database.name} has version {version}, this version of Holdfast supports versions up to {SCHEMA}: "
            "use the newer Holdfast, or choose another database with --database"
        )
    if not may_change:
        raise OlderIndex(
            f"the index {database.name} has version {version or 'none'}, and has not been migrated to "
            f"{SCHEMA} yet"
        )
    with database.writing() as connection:
        if database.path is None:  # two servers may start at once; the SQLite transaction admits only one
            connection.execute(_MIGRATION_LOCK)
        if version is None:
            _create(connection)
        else:
            importlib.import_module(MIGRATE).migrate(connection)
    if version is not None:
        database.notes.append(f"the index {database.name} was migrated from version {version} to {SCHEMA}")


def _create(connection: Connection) -> None:
    """Creates the tables of the newest version, unless another server has just done so.

    source: https://alembic.sqlalchemy.org/en/latest/cookbook.html, "Building an Up to Date Database from Scratch"
    """
    connection.execute(_CREATE_VERSION)
    if connection.execute(_VERSION).first() is None:
        METADATA.create_all(connection, checkfirst=False)
        connection.execute(_SET_VERSION, {"version": SCHEMA})


def _version(database: Database) -> str | None:
    """Returns the schema version; None if there are no tables yet."""
    with database.engine.connect() as connection:
        if not database.engine.dialect.has_table(connection, "alembic_version"):
            return None
        found = connection.execute(_VERSION).scalar_one_or_none()
        return str(found) if found is not None else None


# Engines ------------------------------------------------------------------------------------------------------


def _parsed(url: str) -> URL:
    try:
        place = make_url(url)
    except ArgumentError as error:
        raise IndexUnusable(
            f"{url!r} is not a database: use a URL such as postgresql://USER@HOST/NAME, or no URL for a file"
        ) from error
    name = place.get_backend_name()
    if name not in ("sqlite", "postgresql"):
        raise IndexUnusable(f"the index supports SQLite and PostgreSQL, not {name}")
    if name == "postgresql" and place.drivername == "postgresql":
        return place.set(drivername="postgresql+psycopg")
    return place


def _engine(place: URL, path: Path | None) -> Engine:
    try:
        if path is None:
            return create_engine(
                place,
                pool_size=CONNECTIONS_MAX,
                max_overflow=0,
                pool_timeout=BUSY_S,
                pool_pre_ping=True,
                connect_args={
                    "connect_timeout": int(BUSY_S),
                    "options": f"-c statement_timeout={int(STATEMENT_S * 1000)}",
                    "application_name": "holdfast",
                },
            )
        engine = create_engine(
            place,
            pool_size=CONNECTIONS_MAX,
            max_overflow=0,
            pool_timeout=BUSY_S,
            connect_args={"timeout": BUSY_S, "check_same_thread": False},
        )
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise IndexUnusable(
            f"{place.drivername} is not installed: pip install 'holdfast[postgresql]'"
        ) from error
    wal = is_local(path.parent)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # disable implicit transactions: `begin` below starts them
        for pragma in (
            f"journal_mode = {'WAL' if wal else 'DELETE'}",
            "synchronous = NORMAL",
            "cache_size = -4000",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads and then writes fails at once if another one wrote in between.
        is_write = connection.get_execution_options().get("holdfast_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")

    return engine


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise IndexUnusable(f"{what}: {_short(error)}") from error
    except OSError as error:
        raise IndexUnusable(f"{what}: {error}") from error


def _short(error: Exception) -> str:
    """Returns the database driver's message in one line."""
    inner = getattr(error, "orig", None) or error
    lines = str(inner).strip().splitlines() or [type(inner).__name__]
    return lines[0]


def is_broken(error: IndexUnusable) -> bool:
    """Returns True if the file or the server connection failed and must be reopened."""
    cause = error.__cause__
    if not isinstance(cause, DBAPIError):
        return False
    return cause.connection_invalidated or is_damage(cause.orig or cause)


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _remove(path: Path) -> None:
    try:
        for part in ("", "-wal", "-shm", "-journal"):
            Path(f"{path}{part}").unlink(missing_ok=True)
    except OSError as error:
        raise IndexUnusable(f"the damaged index {path} cannot be removed: {error}") from error

"""Runs the index of a server in a thread: opens the database, updates it and reports changes.

Journals are the source of truth. If the database cannot be used, the service builds a temporary index from
the same journals, `trouble` states the reason, and it retries the database periodically.
"""

import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from sqlalchemy.exc import SQLAlchemyError

from holdfast.archive.index.builder import FOLDERS_KEY, Builder, Progress
from holdfast.archive.index.database import (
    Database,
    IndexUnusable,
    OlderIndex,
    is_broken,
    open_database,
)
from holdfast.archive.index.lock import WriterLock
from holdfast.archive.index.queries import CHANGES_MAX, changes_after, last_revision
from holdfast.archive.places import Places
from holdfast.model.documents.live import Change, StreamReset

FILE = Path("server", "index.db")  # in the first state folder
TURN_S = 0.2
CHANGES_KEPT_MAX = 4_000  # changes that no caller has fetched yet
TRY_AGAIN_S = 5.0
TRY_OWN_AGAIN_S = 60.0  # interval of retries while a temporary index is in use
WAIT_FOR_WRITER_S = 15.0  # for another server that is creating the tables
LOOK_AT_FILE_S = 2.0


class IndexState(Struct, frozen=True, kw_only=True):
    """The state of the index.

    `trouble`: what is wrong with the index and what to do; empty if nothing is. `is_writer`: True if this
    server writes the index. `progress`: None if another server writes it.
    """

    name: str = ""
    trouble: str = ""
    is_writer: bool = False
    progress: Progress | None = None


class IndexService:
    """The index of one server. `database`, `state`, `changes` and `refresh` are thread-safe."""

    def __init__(
        self,
        places: Places,
        url: str = "",
        *,
        fleet: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        processes: int = 2,
    ) -> None:
        """Creates the service. `fleet`: folder of the node book.

        `url`: URL of the database; empty means a file in the first state folder.
        """
        self.places = places
        self._url: str | Path = url or places.all[0].root / FILE
        self._changes: deque[Change] = deque()
        self._clock, self._wall, self._processes, self._fleet = clock, wall, processes, fleet
        self._database: Database | None = None
        self._builder: Builder | None = None
        self._lock = WriterLock()
        self._own: tempfile.TemporaryDirectory[str] | None = None  # the folder of a temporary index
        self._trouble = ""
        self._revision = 0
        self._next_try_s = self._next_own_try_s = self._next_look_s = 0.0
        self._waited_since_s: float | None = None
        self._refreshed: list[str] = []
        self._turned = threading.Condition()
        self._turns = 0
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    # Thread-safe interface --------- ------------------------------------------------------------------------

    @property
    def database(self) -> Database:
        """Returns the open database. Raises IndexUnusable if none is open."""
        database = self._database
        if database is None:
            raise IndexUnusable(self._trouble or "the index is not open yet: try again in a few seconds")
        return database

    @property
    def has_database(self) -> bool:
        return self._database is not None

    @property
    def state(self) -> IndexState:
        database, builder = self._database, self._builder
        return IndexState(
            name=database.name if database is not None else str(self._url),
            trouble=self._trouble,
            is_writer=builder is not None,
            progress=builder.progress if builder is not None else None,
        )

    def changes(self) -> Sequence[Change]:
        """Returns the changes since the last call.

        If too many have accumulated, returns a single reset, after which clients read all documents again.
        """
        found = list[Change]()
        while self._changes:
            found.append(self._changes.popleft())
        return found

    def refresh(self, name: str) -> None:
        """Has the index read a job's journal now, because an entry was added to it."""
        self._refreshed.append(name)
        self._wake.set()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="index", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._close()

    def wait(self, done: Callable[["IndexService"], bool], within_s: float) -> bool:
        """Waits until `done` returns True, tested after each turn. Returns False at the timeout."""
        until_s = time.monotonic() + within_s
        with self._turned:
            while not done(self):
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._turned.wait(left_s)
        return True

    @property
    def is_current(self) -> bool:
        """Returns True if the index contains everything found in the folders."""
        builder = self._builder
        return self._turns > 0 and (builder.is_idle if builder is not None else self._database is not None)

    # The thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            self.turn()
            self._wake.wait(TURN_S)
            self._wake.clear()

    def turn(self) -> None:
        """Runs one turn. Catches every error of the database and the disk."""
        now_s = self._clock()
        try:
            if self._database is None and now_s >= self._next_try_s:
                self._open(now_s)
            if self._database is not None:
                self._turn(self._database, now_s)
        except (IndexUnusable, SQLAlchemyError, OSError) as error:
            self._failed(error, now_s)
        with self._turned:
            self._turns += 1
            self._turned.notify_all()

    def _turn(self, database: Database, now_s: float) -> None:
        if self._own is not None and now_s >= self._next_own_try_s:
            self._try_the_right_one(now_s)
            database = self._database or database
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_AT_FILE_S
            self._look_after(database)
        builder = self._builder
        if builder is None:
            self._tell(database)
            return
        while self._refreshed:
            builder.refresh(self._refreshed.pop())
        if builder.turn():
            self._tell(database)
        if self._own is None:
            self._trouble = builder.trouble

    def _tell(self, database: Database) -> None:
        """Queues the changes since the last call."""
        while changes := changes_after(database, self._revision):
            self._revision = changes[-1][0]
            if len(self._changes) > CHANGES_KEPT_MAX:
                self._changes.clear()
                why = "too many jobs changed at once: read the documents again"
                self._changes.append(Change(kind="reset", job="", data=StreamReset(why=why)))
            self._changes.extend(change for _, change in changes)
            if len(changes) < CHANGES_MAX:
                return

    def _look_after(self, database: Database) -> None:
        """Checks that the open database is still in place, and which server writes it.

        Raises IndexUnusable.
        """
        if database.displaced():
            raise IndexUnusable(
                f"the index {database.name} was removed; Holdfast rebuilds it from the journals"
            )
        if self._builder is None:
            if self._take_lock(database):
                self._build(database)
        elif self._own is None and not self._lock.is_held():
            raise IndexUnusable(f"the connection to the index {database.name} was lost")

    # Opening ----------------------------------------------------------------------------------------------

    def _open(self, now_s: float) -> None:
        """Opens the database, or a temporary one. Raises IndexUnusable, SQLAlchemyError and OSError."""
        may_change = self._lock.take_file(self._url.parent) if isinstance(self._url, Path) else True
        try:
            database = open_database(self._url, may_change=may_change)
        except OlderIndex:
            since_s = self._waited_since_s = self._waited_since_s or now_s
            if now_s - since_s < WAIT_FOR_WRITER_S:
                self._next_try_s = now_s + TURN_S
                return
            raise
        try:
            self._adopt(database)
        except BaseException:
            database.close()
            raise
        self._waited_since_s = None
        self._trouble = ""

    def _adopt(self, database: Database) -> None:
        self._revision = last_revision(database)
        if self._take_lock(database):
            self._build(database)
        elif database.facts().get(FOLDERS_KEY) != self.places.signature:
            raise IndexUnusable(
                f"the index {database.name} is in use by a server with other state folders: "
                "choose another database with --database"
            )
        self._database = database

    def _take_lock(self, database: Database) -> bool:
        if isinstance(self._url, Path) or database.path is not None:
            folder = database.path.parent if database.path is not None else Path()
            return self._own is not None or self._lock.take_file(folder)
        return self._lock.take_in(database)

    def _build(self, database: Database) -> None:
        self._builder = Builder(
            database,
            self.places,
            clock=self._clock,
            wall=self._wall,
            processes=self._processes,
            fleet=self._fleet,
        )

    # Trouble ----------------------------------------------------------------------------------------------

    def _failed(self, error: Exception, now_s: float) -> None:
        """Retries a database that is locked or full, and rebuilds one that is damaged or gone.

        If neither works, opens a temporary database.
        """
        self._trouble = str(error)
        self._next_try_s = now_s + TRY_AGAIN_S
        if self._database is not None and isinstance(error, IndexUnusable) and not is_broken(error):
            if not self._database.displaced():
                return  # locked or full: pending entries wait
        was_open = self._database is not None
        self._close()
        if was_open:
            self._next_try_s = now_s  # opening deletes a damaged file
            return
        try:
            self._open_own(now_s)
        except (IndexUnusable, SQLAlchemyError, OSError) as second:
            self._trouble = f"{error}; a temporary index cannot be created either: {second}"
            self._close()

    def _open_own(self, now_s: float) -> None:
        self._next_own_try_s = now_s + TRY_OWN_AGAIN_S
        self._own = tempfile.TemporaryDirectory(prefix="holdfast-index-", ignore_cleanup_errors=True)
        database = open_database(Path(self._own.name, FILE.name), may_change=True)
        self._adopt(database)

    def _try_the_right_one(self, now_s: float) -> None:
        """Returns from the temporary to the configured database once that can be opened."""
        self._next_own_try_s = now_s + TRY_OWN_AGAIN_S
        try:
            may_change = self._lock.take_file(self._url.parent) if isinstance(self._url, Path) else True
            open_database(self._url, may_change=may_change).close()
        except (IndexUnusable, SQLAlchemyError, OSError) as error:
            self._trouble = str(error)
            return
        self._close()
        self._open(now_s)

    def _close(self) -> None:
        if self._builder is not None:
            self._builder.close()
        if self._database is not None:
            self._database.close()
        self._builder = self._database = None
        self._lock.release()
        if self._own is not None:
            shutil.rmtree(self._own.name, ignore_errors=True)
            self._own.cleanup()
            self._own = None

"""Keeps the history of a fleet's nodes across jobs in an SQLite file that many processes write: the node
book.

    <fleet folder>/nodes.db        events of nodes, where attempts ran, which nodes are isolated
    <fleet folder>/isolated.json   backup of the isolated nodes, used if nodes.db is lost
    <fleet folder>/nodes.db.damaged-<number>   a damaged file that was replaced

Every method is one short transaction, which may wait for a slow disk; `fleet_book` bounds that wait for a
run. On a local disk the file is in WAL mode; on a disk that other machines may share it uses SQLite's
rollback journal, whose locks need only fcntl. All errors are raised as NodeBookUnusable.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.core.nodes.isolation_limit import IsolationLimit
from holdfast.journal.nodes.file import BACKUP, BUSY_S, NodeBookFile, write_whole
from holdfast.journal.nodes.rows import (
    all_isolated,
    encode,
    insert,
    insert_ran,
    line_of,
    put_isolated,
    refusal,
)
from holdfast.model.nodes.book import (
    AnyLine,
    AttemptRan,
    DeviceLine,
    HeldBackLine,
    Isolation,
    IsolationAnswer,
    ReleaseLine,
)

_NODES = msgspec.json.Decoder(tuple[str, ...])
_Answer = TypeVar("_Answer")


class NodeBook:
    """One process's access to the node book, from a single thread.

    `notes`: messages for users; the caller shows and clears them.
    """

    def __init__(
        self, folder: Path, *, busy_s: float = BUSY_S, read_only: bool = False, shared: bool = False
    ) -> None:
        """Sets the file to use, without opening it.

        `folder`: the fleet folder. `busy_s`: maximum wait for other processes' transactions. `shared`: True
        if other machines write the file too, even if the disk looks local.
        """
        self._file = NodeBookFile(folder, busy_s=busy_s, read_only=read_only, shared=shared)
        self.folder, self.path, self.notes = folder, self._file.path, self._file.notes

    # Writing ------------------------------------------------------------------------------------------------

    def note(self, lines: Sequence[tuple[str, AnyLine]], ran: Iterable[AttemptRan] = ()) -> None:
        """Writes events of nodes and the records of where attempts ran, in one transaction.

        `lines`: pairs of key and event; an event with an existing key replaces the stored one.

        raises: NodeBookUnusable
        """

        def write(connection: sqlite3.Connection) -> None:
            for key, line in lines:
                insert(connection, key, line)
            for one in ran:
                insert_ran(connection, one)

        self._transact(write)

    def isolate(
        self, wanted: Isolation, *, limit: IsolationLimit | None = None, nodes: int = 0
    ) -> IsolationAnswer:
        """Excludes a node from all jobs, unless the limit on isolations per hour is reached.

        `limit`: None for an isolation by a person, which is always allowed. `nodes`: number of nodes of the
        job, which the node book may not contain yet. The limit is checked and the isolation is written in one
        transaction, so that concurrent jobs share the limit.

        raises: NodeBookUnusable
        """

        def write(connection: sqlite3.Connection) -> IsolationAnswer:
            if connection.execute("SELECT 1 FROM isolated WHERE node = ?", (wanted.node,)).fetchone():
                return IsolationAnswer(True)
            if limit is not None:
                refused = refusal(connection, wanted, limit, nodes)
                if refused:
                    held = HeldBackLine(
                        at_s=wanted.since_s, node=wanted.node, reason=refused, by=wanted.by, run=wanted.run
                    )
                    insert(connection, f"held-back/{wanted.run}/{wanted.node}", held)
                    return IsolationAnswer(False, refused)
            put_isolated(connection, wanted)
            self._keep_backup(connection)
            return IsolationAnswer(True)

        return self._transact(write)

    def release(self, line: ReleaseLine) -> bool:
        """Makes an isolated node available again.

        Returns False if it was not isolated. raises: NodeBookUnusable
        """

        def write(connection: sqlite3.Connection) -> bool:
            gone = connection.execute("DELETE FROM isolated WHERE node = ?", (line.node,)).rowcount
            if not gone:
                return False
            insert(connection, f"release/{line.node}/{line.at_s!r}", line)
            self._keep_backup(connection)
            return True

        return self._transact(write)

    # Reading ------------------------------------------------------------------------------------------------

    def isolated(self) -> dict[str, Isolation]:
        """Returns the isolated nodes by name. raises: NodeBookUnusable"""
        return {one.node: one for one in self._file.ask(all_isolated)}

    def lines(self, node: str = "", *, since_s: float = 0.0, kinds: Sequence[str] = ()) -> list[AnyLine]:
        """Returns the events in the node book in order of time, at `since_s` or later, of these `kinds`
        (empty: all).

        `node`: name of a node, or serial number of a device; empty: all. Events that concern all nodes of an
        attempt have no node name.

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
            return [line for row in rows if (line := line_of(row[0])) is not None]

        return self._file.ask(read)

    def attempts(self, since_s: float = 0.0) -> list[AttemptRan]:
        """Returns the attempts that ran at `since_s` or later, in order of their start.

        raises: NodeBookUnusable
        """

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

        return self._file.ask(read)

    def devices(self) -> dict[str, DeviceLine]:
        """Returns the last recorded event about each device, by serial number; the event names the device's
        node.

        raises: NodeBookUnusable
        """
        lines = self.lines(kinds=("device",))
        return {line.serial: line for line in lines if isinstance(line, DeviceLine)}

    def nodes(self) -> dict[str, float]:
        """Returns all known nodes with the time of their last recorded event, in seconds since the epoch.

        raises: NodeBookUnusable
        """
        return self._file.ask(lambda connection: dict(connection.execute("SELECT node, seen_s FROM nodes")))

    def close(self) -> None:
        self._file.close()

    # Inside ------------------------------------------------------------------------------------------------

    def _keep_backup(self, connection: sqlite3.Connection) -> None:
        """Writes the isolated nodes to the backup file, within the transaction, so that no other writer
        interferes.

        A crash before the commit leaves a backup that is ahead of the book until the next change. A full disk
        must not prevent an isolation.
        """
        try:
            write_whole(self.folder / BACKUP, encode(all_isolated(connection)))
        except OSError as error:
            self.notes.append(
                f"{self.folder / BACKUP}, the backup of the isolated nodes, cannot be written: {error}"
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

        return self._file.ask(whole)

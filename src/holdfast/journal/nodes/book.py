"""The node book: what is known of a fleet's nodes over all jobs, in one SQLite file that many processes write.

    <fleet folder>/nodes.db        lines, where attempts ran, which nodes are isolated
    <fleet folder>/isolated.json   the isolated nodes once more, for when nodes.db is lost
    <fleet folder>/nodes.db.damaged-<time>   a file that could not be read, set aside

Every method is one short transaction. On a local disk the file is in WAL mode; on one that other machines may see,
and wherever that is not known, SQLite's rollback journal is used, which locks by fcntl alone. A damaged file is set
aside and a new one begun, with the isolated nodes from `isolated.json`. Whatever waits or fails raises NodeBookUnusable:
that a run does not wait for it is the matter of `fleet_book`.
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
    """One process's way to the book. For one thread. Opens the file when it is first needed, and again after trouble."""

    def __init__(
        self, folder: Path, *, busy_s: float = BUSY_S, read_only: bool = False, shared: bool = False
    ) -> None:
        """`shared`: other machines write it too, whatever the disk looks like here."""
        self._file = NodeBookFile(folder, busy_s=busy_s, read_only=read_only, shared=shared)
        self.folder, self.path, self.notes = folder, self._file.path, self._file.notes

    # Writing ------------------------------------------------------------------------------------------------

    def note(self, lines: Sequence[tuple[str, AnyLine]], ran: Iterable[AttemptRan] = ()) -> None:
        """Writes the lines, each under its key: the same key again replaces what it was. All or none.

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
        """Isolates the node for all jobs, unless too many were within the hour. Without a `limit`: a person's word.

        Counted and written in one transaction, so that jobs that want it at the same time are held to one limit.
        `nodes`: how many the job has, where the book may not know them yet. raises: NodeBookUnusable
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
        """Gives the node back. False: it was not isolated. raises: NodeBookUnusable"""

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
        """The nodes that are not to be used. raises: NodeBookUnusable"""
        return {one.node: one for one in self._file.ask(all_isolated)}

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
            return [line for row in rows if (line := line_of(row[0])) is not None]

        return self._file.ask(read)

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

        return self._file.ask(read)

    def devices(self) -> dict[str, DeviceLine]:
        """By serial number: where each device was seen last. raises: NodeBookUnusable"""
        lines = self.lines(kinds=("device",))
        return {line.serial: line for line in lines if isinstance(line, DeviceLine)}

    def nodes(self) -> dict[str, float]:
        """All nodes that are known of, and when something was last written of them. raises: NodeBookUnusable"""
        return self._file.ask(lambda connection: dict(connection.execute("SELECT node, seen_s FROM nodes")))

    def close(self) -> None:
        self._file.close()

    # Inside ------------------------------------------------------------------------------------------------

    def _keep_backup(self, connection: sqlite3.Connection) -> None:
        """Inside the transaction, so that no other writer comes between. A crash before its end leaves the newer list,
        which is true again with the next change. A disk without room for it must not keep a node from being isolated.
        """
        try:
            write_whole(self.folder / BACKUP, encode(all_isolated(connection)))
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

        return self._file.ask(whole)

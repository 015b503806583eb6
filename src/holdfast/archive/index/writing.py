"""Writes job entries and node rows into the index.

One writer at a time: the caller holds the index's lock.
"""

import importlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, delete, func, insert, select

from holdfast.archive.index.database import Database
from holdfast.archive.index.entry import (
    LABEL_CHARACTERS_MAX,
    LABELS_MAX,
    NODES_MAX,
    JobEntry,
    searchable,
    storable,
)
from holdfast.archive.index.tables import (
    INCIDENT_NODES,
    INCIDENTS,
    JOB_DOCUMENTS,
    JOB_LABELS,
    JOB_NODES,
    JOBS,
    NODES,
    OF_A_JOB,
    REMOVED,
    SOURCES,
)
from holdfast.model.documents.jobs import IncidentRow
from holdfast.model.documents.nodes import NodeRow

NAMES_MAX = 500  # per IN (...)
REMEMBERED_MAX = 1_024  # jobs whose written rows stay in memory
REMOVED_MAX = 10_000  # removed jobs that stay listed
_encode = msgspec.json.Encoder().encode


class Writer:
    """Writer of the index.

    `revision`: number of the last change; it increases by one for each row, above all revisions ever written.
    """

    def __init__(self, database: Database, at_least: int) -> None:
        """Creates a writer. Raises IndexUnusable.

        `at_least`: a revision above those of a lost index, such as the time in milliseconds.
        """
        self._database = database
        with database.reading() as connection:
            last = [
                connection.execute(select(func.max(table.c.revision))).scalar() or 0
                for table in (JOBS, INCIDENTS, REMOVED)
            ]
        self.revision = max(at_least, *last)
        self._written: OrderedDict[str, _Parts] = OrderedDict()

    def put(self, entries: Sequence[JobEntry]) -> None:
        """Replaces the entries of these jobs in one transaction. Raises IndexUnusable."""
        revision = self.revision
        try:
            with self._database.writing() as connection:
                self._put(connection, entries)
        except BaseException:
            self.revision = revision
            for entry in entries:
                self._written.pop(entry.row.id, None)
            raise

    def remove(self, ids: Sequence[str]) -> None:
        """Removes jobs from the index. Raises IndexUnusable."""
        if not ids:
            return
        with self._database.writing() as connection:
            for names in _chunks(ids):
                for table in OF_A_JOB:
                    connection.execute(delete(table).where(table.c.job.in_(names)))
                for table in (JOBS, JOB_DOCUMENTS):
                    connection.execute(delete(table).where(table.c.id.in_(names)))
            rows = [{"job": name, "revision": self.revision + number} for number, name in enumerate(ids, 1)]
            _upsert(connection, REMOVED, rows)
            oldest = self.revision + len(ids) - REMOVED_MAX
            connection.execute(delete(REMOVED).where(REMOVED.c.revision <= oldest))
        self.revision += len(ids)
        for name in ids:
            self._written.pop(name, None)

    def clear(self) -> None:
        """Deletes all rows except those that list removed jobs. Raises IndexUnusable."""
        with self._database.writing() as connection:
            for table in (*OF_A_JOB, JOBS, JOB_DOCUMENTS, NODES):
                connection.execute(delete(table))
        self._written.clear()

    def put_nodes(self, rows: Sequence[NodeRow]) -> None:
        """Replaces all node rows. `rows` are in list order. Raises IndexUnusable."""
        with self._database.writing() as connection:
            connection.execute(delete(NODES))
            if rows:
                connection.execute(
                    insert(NODES),
                    [
                        {
                            "node": storable(row.node),
                            "rank": rank,
                            "isolated": row.isolated,
                            "search": searchable([row.node, row.last, row.isolated_for]),
                            "row": _encode(row),
                        }
                        for rank, row in enumerate(rows)
                    ],
                )

    # Inside -----------------------------------------------------------------------------------------------

    def _put(self, connection: Connection, entries: Sequence[JobEntry]) -> None:
        columns = []
        for entry in entries:
            self.revision += 1
            columns.append(_columns(entry, self.revision))
        _upsert(connection, JOBS, columns)
        _upsert(connection, JOB_DOCUMENTS, [{"id": one.row.id, "row": _encode(one.row)} for one in entries])
        _upsert(connection, SOURCES, [_source(one) for one in entries])
        known = self._known(connection, [entry.row.id for entry in entries])
        now = {entry.row.id: _Parts.of(entry) for entry in entries}
        for table, which in ((JOB_LABELS, "labels"), (JOB_NODES, "nodes")):
            changed = [name for name in now if getattr(known[name], which) != getattr(now[name], which)]
            _delete(connection, table, changed)
            rows = [row for name in changed for row in now[name].rows(name, which)]
            if rows:
                connection.execute(insert(table), rows)
        self._put_incidents(connection, entries, known, now)
        self._written.update(now)
        for name in now:
            self._written.move_to_end(name)
        while len(self._written) > REMEMBERED_MAX:
            self._written.popitem(last=False)

    def _put_incidents(
        self,
        connection: Connection,
        entries: Sequence[JobEntry],
        known: dict[str, "_Parts"],
        now: dict[str, "_Parts"],
    ) -> None:
        rows, nodes = list[dict[str, object]](), list[dict[str, object]]()
        for entry in entries:
            name, before, after = entry.row.id, known[entry.row.id].incidents, now[entry.row.id].incidents
            stale = [number for number in before if after.get(number) != before[number]]
            for chunk in _chunks(stale):
                for table in (INCIDENTS, INCIDENT_NODES):
                    connection.execute(delete(table).where(table.c.job == name, table.c.number.in_(chunk)))
            for row in entry.incidents:
                if before.get(row.number) == after[row.number]:
                    continue
                self.revision += 1
                rows.append(_incident(name, row, self.revision, after[row.number]))
                named = {storable(who.node) for who in row.who if who.node}
                nodes += [{"job": name, "number": row.number, "node": node} for node in sorted(named)]
        if rows:
            connection.execute(insert(INCIDENTS), rows)
        if nodes:
            connection.execute(insert(INCIDENT_NODES), nodes)

    def _known(self, connection: Connection, names: Sequence[str]) -> dict[str, "_Parts"]:
        """Returns the current rows of these jobs. Reads each job only once."""
        found = {name: self._written.get(name) or _Parts() for name in names}
        for chunk in _chunks([name for name in names if name not in self._written]):
            rows = connection.execute(select(JOB_LABELS).where(JOB_LABELS.c.job.in_(chunk)))
            for job, key, value in rows:
                found[job].labels[key] = value
            rows = connection.execute(select(JOB_NODES).where(JOB_NODES.c.job.in_(chunk)))
            for job, node, is_now in rows:
                found[job].nodes[node] = is_now
            columns = (INCIDENTS.c.job, INCIDENTS.c.number, INCIDENTS.c.row)
            for job, number, row in connection.execute(select(*columns).where(INCIDENTS.c.job.in_(chunk))):
                found[job].incidents[number] = bytes(row)
        return found


class _Parts:
    """The rows of a job besides its job row. `incidents`: documents as bytes."""

    __slots__ = ("incidents", "labels", "nodes")

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.nodes: dict[str, bool] = {}
        self.incidents: dict[int, bytes] = {}

    @staticmethod
    def of(entry: JobEntry) -> "_Parts":
        parts = _Parts()
        for key, value in list(entry.row.labels.items())[:LABELS_MAX]:
            parts.labels[storable(key[:LABEL_CHARACTERS_MAX])] = storable(value[:LABEL_CHARACTERS_MAX])
        now = frozenset(entry.row.nodes)
        parts.nodes = {storable(node): node in now for node in entry.nodes[:NODES_MAX]}
        parts.incidents = {row.number: _encode(row) for row in entry.incidents}
        return parts

    def rows(self, name: str, which: str) -> list[dict[str, object]]:
        if which == "nodes":
            return [{"job": name, "node": node, "is_now": self.nodes[node]} for node in sorted(self.nodes)]
        return [{"job": name, "key": key, "value": value} for key, value in self.labels.items()]


def _columns(entry: JobEntry, revision: int) -> dict[str, object]:
    row = entry.row
    return {
        "id": row.id,
        "sort_s": row.submitted_at_s if row.submitted_at_s is not None else row.seen_at_s or 0.0,
        "state": row.state,
        "category": storable(row.category),
        "cause": storable(row.cause),
        "live": entry.live,
        "submitted_at_s": row.submitted_at_s,
        "ended_at_s": row.ended_at_s,
        "seen_at_s": row.seen_at_s,
        "revision": revision,
        "search": entry.search,
    }


def _incident(name: str, row: IncidentRow, revision: int, document: bytes) -> dict[str, object]:
    return {
        "job": name,
        "number": row.number,
        "found_at_s": row.found_at_s,
        "category": storable(row.category),
        "cause": storable(row.cause),
        "over": row.over,
        "revision": revision,
        "row": document,
    }


def _source(entry: JobEntry) -> dict[str, object]:
    position = entry.position
    return {
        "job": entry.row.id,
        "device": position.device,
        "inode": position.inode,
        "seq": position.seq,
        "chain": position.chain,
        "stamp": position.stamp,
        "trouble": storable(position.trouble),
        "kept_seq": position.kept_seq,
        "kept_chain": position.kept_chain,
        "kept": position.kept,
    }


def _delete(connection: Connection, table: Table, names: Sequence[str]) -> None:
    for chunk in _chunks(names):
        connection.execute(delete(table).where(table.c.job.in_(chunk)))


def _upsert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    # Of the two databases only the one in use is imported: PostgreSQL's part takes 30 ms.
    dialect: Any = importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}")
    statement = dialect.insert(table)
    keys = [column.name for column in table.primary_key.columns]
    others = {
        column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys
    }
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others), rows)


def _chunks(names: Iterable[Any]) -> Iterable[list[Any]]:
    rest = list(names)
    for start in range(0, len(rest), NAMES_MAX):
        yield rest[start : start + NAMES_MAX]

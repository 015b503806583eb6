"""Reads and writes the rows of the node book's tables. Each function runs inside its caller's transaction."""

import sqlite3
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.core.nodes.isolation_limit import IsolationLimit, why_not
from holdfast.journal.rows import writable
from holdfast.model.nodes.book import (
    AnyLine,
    AttemptRan,
    DeviceLine,
    Isolation,
    IsolationLine,
)

DAY_S = 86_400.0
ATTEMPTS_KEPT_S = 120 * DAY_S  # how long attempts are kept after their end
LINES_KEPT_S = 730 * DAY_S  # isolations, releases and repairs are kept forever
NODE_KNOWN_S = 30 * DAY_S  # a node without news for this long no longer counts as part of the fleet
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
encode = msgspec.json.Encoder().encode


def put_isolated(connection: sqlite3.Connection, isolation: Isolation) -> None:
    """Stores that a node is isolated, and records the isolation as an event of that node."""
    connection.execute(
        "INSERT OR REPLACE INTO isolated VALUES (?, ?, ?, ?, ?)",
        tuple(
            map(_plain, (isolation.node, isolation.since_s, isolation.reason, isolation.by, isolation.run))
        ),
    )
    line = IsolationLine(
        at_s=isolation.since_s,
        node=isolation.node,
        reason=isolation.reason,
        by=isolation.by,
        run=isolation.run,
    )
    insert(connection, f"isolation/{isolation.node}/{isolation.since_s!r}", line)


def insert(connection: sqlite3.Connection, key: str, line: AnyLine) -> None:
    """Writes an event of a node; it replaces an earlier event with the same key."""
    at_s = line.at_s if line.at_s == line.at_s else 0.0
    if isinstance(line, DeviceLine):
        line = _with_first(connection, key, line)
    run = getattr(line, "run", "")
    kind = str(type(line).__struct_config__.tag)
    connection.execute(
        "INSERT INTO lines(key, at_s, node, serial, kind, run, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(key) DO UPDATE SET at_s = excluded.at_s, node = excluded.node, serial = excluded.serial,"
        " kind = excluded.kind, run = excluded.run, body = excluded.body",
        (writable(key), at_s, writable(line.node), writable(line.serial), kind, writable(run), encode(line)),
    )
    if line.node:
        _seen(connection, (line.node,), at_s)


def _with_first(connection: sqlite3.Connection, key: str, line: DeviceLine) -> DeviceLine:
    """Returns the line with `since_s` set to when the device was first seen in this node without another in
    between.
    """
    query = (
        "SELECT key, body FROM lines WHERE serial = ? AND kind = 'device' ORDER BY at_s DESC, id DESC LIMIT 1"
    )
    row = connection.execute(query, (writable(line.serial),)).fetchone()
    before = line_of(row[1]) if row is not None and row[0] == writable(key) else None
    return replace(line, since_s=before.since_s) if isinstance(before, DeviceLine) else line


def insert_ran(connection: sqlite3.Connection, ran: AttemptRan) -> None:
    """Writes on which nodes an attempt ran; it replaces an earlier row of the same attempt."""
    if not ran.hours:
        _forget_old(connection, ran.started_s)  # once per attempt
    connection.execute(
        "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?)",
        (writable(ran.run), ran.attempt, ran.started_s, max(0.0, ran.hours), encode(ran.nodes)),
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


def refusal(connection: sqlite3.Connection, wanted: Isolation, limit: IsolationLimit, nodes: int) -> str:
    """Returns the reason why the limit on isolations forbids this isolation; empty if it is allowed.

    Isolations made by people and isolations that were lifted count too. `nodes`: number of nodes of the job.
    """
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


def all_isolated(connection: sqlite3.Connection) -> list[Isolation]:
    """Returns the isolated nodes in order of time."""
    rows = connection.execute("SELECT node, since_s, reason, by, run FROM isolated ORDER BY since_s, node")
    return [Isolation(node=row[0], since_s=row[1], reason=row[2], by=row[3], run=row[4]) for row in rows]


def line_of(body: bytes) -> AnyLine | None:
    """Decodes an event in the node book; None if this version does not know its kind."""
    try:
        return _LINE.decode(body)
    except msgspec.ValidationError:
        return None


def _plain(value: object) -> object:
    return writable(value) if isinstance(value, str) else value

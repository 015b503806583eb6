"""Keeps copies of the job's journal on the nodes of two agents, because the controller's own disk may be lost
with its node.

New rows are sent to both agents before an order that rests on them is carried out, and at least every
`EVERY_S`. Reports of agents are acknowledged once the copies contain the rows about them. The controller
never waits for a copy: if an agent does not acknowledge within `LATE_S`, another agent gets a copy.
"""

import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.journal.recorder import Recorder
from holdfast.journal.rows import JournalUnusable
from holdfast.model.nodes.workers import FILE_KEY, LINEAGE, AgentHello, CopiedRow, KeepRows, RowsKept

COPIES = 2
EVERY_S, LATE_S = 0.5, 10.0
ROWS_MAX, BYTES_MAX = 500, 1 << 19
FILE_BYTES_MAX = 1 << 16

_encode = msgspec.msgpack.Encoder().encode


class _Copy(Struct):
    """State of one agent's copy. `kept`: the last row acknowledged; `sent`: the last row sent, at `sent_s`."""

    kept: int = 0
    sent: int = 0
    sent_s: float = 0.0
    is_broken: bool = False


class JournalCopies:
    """The copies of one job's journal.

    `say`: sends a message to an agent, and returns False if it is not connected. `files`: names of files in the
    job's folder that are copied too.
    """

    def __init__(
        self, record: Recorder, say: Callable[[str, bytes], bool], folder: Path, files: tuple[str, ...]
    ) -> None:
        self._record, self._say, self._folder, self._names = record, say, folder, files
        self._copies: dict[str, _Copy] = {}  # of connected agents
        self._chosen: list[str] = []
        self._pushed_s = float("-inf")
        self._lineage = self._known_lineage()

    def _known_lineage(self) -> str:
        store = self._record.store
        known = b""
        if store is not None:
            with suppress(JournalUnusable):
                known = store.meta(LINEAGE) or b""
        lineage = known.decode("ascii", "replace") or secrets.token_hex(8)
        if not known:
            self._record.set_meta(LINEAGE, lineage.encode())
        return lineage

    def joined(self, hello: AgentHello) -> None:
        kept = hello.copy_seq if hello.copy_of == self._lineage else 0
        self._copies[hello.node] = _Copy(kept=kept, sent=kept)

    def left(self, node: str) -> None:
        self._copies.pop(node, None)

    def kept(self, node: str, report: RowsKept) -> None:
        copy = self._copies.get(node)
        if copy is not None and report.lineage == self._lineage:
            copy.is_broken = copy.is_broken or report.is_broken
            has_gap = report.seq <= copy.kept  # what was sent does not follow on what is there
            copy.sent = report.seq if has_gap else max(copy.sent, report.seq)
            copy.kept = report.seq

    def covers(self, seq: int) -> bool:
        """Returns whether the copies contain all journal rows up to number `seq`. Also True if no agent can
        keep a copy.
        """
        return all(self._copies[node].kept >= seq for node in self._chosen if node in self._copies)

    def push(self, at_s: float, *, now: bool = False) -> None:
        """Sends new rows to the copies, if they are due. `now`: send them at once, because an order rests on
        them.
        """
        store = self._record.store
        is_due = at_s - self._pushed_s >= EVERY_S
        if store is None or not (now or is_due):
            return
        if is_due:  # not for each of the thousands of orders of a start
            self._pushed_s = at_s
            self._choose(at_s)
        last = store.last_seq
        for node in self._chosen:
            copy = self._copies.get(node)
            if copy is not None and copy.sent < last:
                rows, meta = self._rows(copy.sent), self._meta() if copy.sent == copy.kept else {}
                if not rows:
                    continue  # the journal cannot be read now
                given = KeepRows(lineage=self._lineage, after=copy.sent, rows=rows, meta=meta)
                before, copy.sent, copy.sent_s = copy.sent, copy.sent + len(rows), at_s
                if not self._say(node, _encode(given)):
                    copy.sent = before

    def _choose(self, at_s: float) -> None:
        for copy in self._copies.values():
            if copy.sent > copy.kept and at_s - copy.sent_s > LATE_S:
                copy.is_broken, copy.sent = True, copy.kept
        good = [node for node in self._chosen if node in self._copies and not self._copies[node].is_broken]
        others = sorted(node for node, one in self._copies.items() if not one.is_broken and node not in good)
        others.sort(key=lambda node: -self._copies[node].kept)
        self._chosen = [*good, *others][:COPIES]

    def _rows(self, after: int) -> tuple[CopiedRow, ...]:
        rows: list[CopiedRow] = []
        size = 0
        store = self._record.store
        assert store is not None, "rows come from an open journal"
        with suppress(JournalUnusable):
            for raw in store.read_raw(after):
                rows.append(raw[:5])
                size += len(raw[2]) + len(raw[3])
                if len(rows) >= ROWS_MAX or size >= BYTES_MAX:
                    break
        return tuple(rows)

    def _meta(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        store = self._record.store
        if store is not None:
            with suppress(JournalUnusable):
                found = store.all_meta()
        for name in self._names:
            with suppress(OSError):
                found[FILE_KEY + name] = (self._folder / name).read_bytes()[:FILE_BYTES_MAX]
        return found

"""Rebuilds the node rows of the index whenever the node book changes."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from holdfast.core.nodes.lemon_evidence import WINDOW_DAYS, observed
from holdfast.core.nodes.lemons import Score, judge
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import FILE, NodeBookUnusable
from holdfast.model.documents.nodes import NodeRow
from holdfast.model.nodes.book import Isolation
from holdfast.views.jobs.nodes import isolated_for
from holdfast.views.nodes import NodeRow as ListedNode
from holdfast.views.nodes import node_rows

LOOK_S = 2.0  # interval of checks of the book
SHARE_MAX = 0.02  # maximum share of the time spent on reading the book
DAY_S = 86_400.0
BUSY_S = 1.0


class BookWatch:
    """Watcher of the node book. A thread reads the book, because scoring a large fleet takes seconds.

    `trouble`: why the book could not be read; empty if it could.
    """

    def __init__(self, folder: Path, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._folder, self._clock, self._wall = folder, clock, wall
        self._stamp = ""
        self._next_s = 0.0
        self._took_s = 0.0  # the last reading
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="node-book")
        self._reading: Future[list[NodeRow]] | None = None
        self.trouble = ""

    def rows(self) -> list[NodeRow] | None:
        """Returns the node rows in list order if the book has changed, otherwise None. Never blocks."""
        now_s = self._clock()
        if self._reading is not None:
            return self._read(self._reading, now_s) if self._reading.done() else None
        if now_s < self._next_s:
            return None
        self._next_s = now_s + LOOK_S
        stamp = _stamp(self._folder / FILE)
        if stamp != self._stamp:
            self._stamp = stamp
            self._reading = self._thread.submit(self._timed_rows)
        return None

    def close(self) -> None:
        self._thread.shutdown()

    def _timed_rows(self) -> list[NodeRow]:
        """Reads the rows in the thread, and measures how long it takes. Raises NodeBookUnusable."""
        began_s = self._clock()
        try:
            return _read_rows(self._folder, self._wall())
        finally:
            self._took_s = self._clock() - began_s

    def _read(self, reading: "Future[list[NodeRow]]", now_s: float) -> list[NodeRow] | None:
        self._reading = None
        self._next_s = now_s + max(LOOK_S, self._took_s / SHARE_MAX)
        try:
            found = reading.result()
        except NodeBookUnusable as error:
            self.trouble, self._stamp = str(error), ""
            return None
        self.trouble = ""
        return found


def _read_rows(folder: Path, now_s: float) -> list[NodeRow]:
    """Reads the node book and returns its rows. Raises NodeBookUnusable."""
    book = NodeBook(folder, read_only=True, busy_s=BUSY_S)
    try:
        return _rows(book, now_s)
    finally:
        book.close()


def _rows(book: NodeBook, now_s: float) -> list[NodeRow]:
    """Returns the rows of an open node book. Raises NodeBookUnusable."""
    since_s = now_s - WINDOW_DAYS * DAY_S
    lines, isolated = book.lines(), book.isolated()
    judged = judge(observed(lines, book.attempts(since_s), since_s=since_s))
    scores = {score.node: score for score in judged.scores}
    listed = node_rows(book.nodes(), isolated, judged, lines)
    return [_row(one, isolated.get(one.node), scores.get(one.node)) for one in listed]


def _row(listed: ListedNode, isolation: Isolation | None, score: Score | None) -> NodeRow:
    return NodeRow(
        node=listed.node,
        isolated=isolation is not None,
        isolated_for=isolated_for(isolation),
        isolated_at_s=isolation.since_s if isolation is not None else None,
        lemon=listed.named,
        lemon_score=round(listed.lemon, 4) if score is not None else None,
        numbers=_numbers(score) if score is not None else {},
        last_at_s=listed.last_at_s,
        last=listed.last,
    )


def _numbers(score: Score) -> dict[str, float]:
    """Returns the inputs of a lemon score and its terms, which add up to the log odds."""
    counts = {
        "days": round(score.days, 2),
        "attributed": float(score.attributed),
        "shared": float(score.shared),
        "likely_its": round(score.likely_its, 2),
        "per_day": round(score.per_day, 4),
    }
    return {**counts, **{f"term:{term.name}": round(term.nats, 3) for term in score.terms}}


def _stamp(path: Path) -> str:
    found = []
    for part in ("", "-wal"):
        try:
            status = os.stat(f"{path}{part}")
            found.append(f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}")
        except OSError:
            found.append("-")
    return "/".join(found)

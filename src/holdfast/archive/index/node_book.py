"""Makes the rows of nodes from the node book, whenever it has changed."""

import os
from collections.abc import Callable
from pathlib import Path

from holdfast.core.nodes.lemon_evidence import WINDOW_DAYS, observed
from holdfast.core.nodes.lemons import Score, judge
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import FILE, NodeBookUnusable
from holdfast.model.documents.nodes import NodeRow
from holdfast.model.nodes.book import Isolation
from holdfast.views.nodes import NodeRow as ListedNode
from holdfast.views.nodes import node_rows

LOOK_S = 2.0  # between two looks at the book
SHARE_MAX = 0.02  # of the time of its thread that reading the book may take
DAY_S = 86_400.0
BUSY_S = 1.0


class BookWatch:
    """`rows` reads the book if it has changed, and not too often. `trouble`: why it could not; empty: it could."""

    def __init__(self, folder: Path, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._folder, self._clock, self._wall = folder, clock, wall
        self._stamp = ""
        self._next_s = 0.0
        self.trouble = ""

    def rows(self) -> list[NodeRow] | None:
        """In the order of the list; None: nothing new."""
        began_s = self._clock()
        if began_s < self._next_s:
            return None
        self._next_s = began_s + LOOK_S
        stamp = _stamp(self._folder / FILE)
        if stamp == self._stamp:
            return None
        book = NodeBook(self._folder, read_only=True, busy_s=BUSY_S)
        try:
            found = _rows(book, self._wall())
        except NodeBookUnusable as error:
            self.trouble = str(error)
            return None
        finally:
            book.close()
        self._stamp, self.trouble = stamp, ""
        took_s = self._clock() - began_s
        self._next_s = began_s + max(LOOK_S, took_s / SHARE_MAX)
        return found


def _rows(book: NodeBook, now_s: float) -> list[NodeRow]:
    """raises: NodeBookUnusable"""
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
        isolated_for=f"{isolation.reason} ({isolation.by})" if isolation is not None else "",
        isolated_at_s=isolation.since_s if isolation is not None else None,
        lemon=listed.named,
        lemon_score=round(listed.lemon, 4) if score is not None else None,
        numbers=_numbers(score) if score is not None else {},
        last_at_s=listed.last_at_s,
        last=listed.last,
    )


def _numbers(score: Score) -> dict[str, float]:
    """Those that made the score, and its terms: they add up to its log odds."""
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
            told = os.stat(f"{path}{part}")
            found.append(f"{told.st_ino}.{told.st_size}.{told.st_mtime_ns}")
        except OSError:
            found.append("-")
    return "/".join(found)

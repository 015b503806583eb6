"""Gives a run access to the node book through a background thread, with a bounded wait.

A fleet folder on an unreachable file server blocks every process that accesses it, for minutes or forever. So
the run only queues what is to be written. If it needs an answer (which nodes are isolated), it waits at most
`wait_s` and then uses the last answer that it received. It reports once that the node book does not answer,
and once that it can be used again.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from holdfast.core.nodes.isolation_limit import IsolationLimit
from holdfast.core.plurals import counted
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import NodeBookUnusable
from holdfast.model.nodes.book import (
    AnyLine,
    AttemptRan,
    Isolation,
    IsolationAnswer,
    ReleaseLine,
)

WAIT_S = 2.0  # for an answer
CLOSE_S = 10.0  # at the end of a run, for what is not written yet
BUSY_S = 1.0  # for transactions of other processes
RETRY_S = 30.0  # what could not be written is tried again after this long
LINES_MAX = 10_000  # waiting to be written; the oldest are dropped first
_Answer = TypeVar("_Answer")


class FleetBook:
    """A run's access to the node book. Every method returns within `wait_s` seconds (`close` within `close_s`) and raises nothing.

    `say`: shows a sentence to the user; not called from the background thread.
    """

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        *,
        limit: IsolationLimit,
        wait_s: float = WAIT_S,
        close_s: float = CLOSE_S,
        book: NodeBook | None = None,
    ) -> None:
        self.folder = folder
        self._book = book if book is not None else NodeBook(folder, busy_s=min(BUSY_S, wait_s / 2))
        self._say, self._wait_s, self._close_s, self._limit = say, wait_s, close_s, limit
        self._lines: deque[tuple[str, AnyLine]] = deque(maxlen=LINES_MAX)
        self._ran: dict[tuple[str, int], AttemptRan] = {}
        self._asked: deque[Callable[[], None]] = deque()
        self._known: dict[str, Isolation] = {}  # the last answer
        # Isolated while the book did not answer, with the job's number of nodes: written once it answers.
        self._own: dict[str, tuple[Isolation, int]] = {}
        self._trouble = ""
        self._unwritten = False
        self._trouble_shown = False
        self._closing = False
        self._turn = threading.Condition()
        self._thread: threading.Thread | None = None

    # Called by the run --------------------------------------------------------------------------------------

    def note(self, lines: Iterable[tuple[str, AnyLine]], ran: Iterable[AttemptRan] = ()) -> None:
        """Queues events of nodes and records of attempts, to be written to the node book.

        A later event with the same key, or a later record of the same attempt, replaces the earlier one.
        """
        with self._turn:
            self._lines.extend(lines)
            self._ran.update(((one.run, one.attempt), one) for one in ran)
            if self._lines or self._ran:
                self._begin()
                self._turn.notify()

    def isolated(self) -> dict[str, Isolation]:
        """Returns the nodes that no job may use now; the last known ones if the book does not
        answer in time.
        """
        found = self._ask(self._book.isolated)
        if found is not None:
            self._known = {**found, **{node: one for node, (one, _) in self._own.items()}}
        return dict(self._known)

    def isolate(self, wanted: Isolation, *, nodes: int = 0) -> IsolationAnswer:
        """Excludes a node from all jobs, within the fleet's limit on isolations; see NodeBook.isolate.

        If the book does not answer, the node is excluded from this job at once, and from others when the book
        answers.
        """
        answer = self._ask(lambda: self._book.isolate(wanted, limit=self._limit, nodes=nodes))
        if answer is None:
            answer = IsolationAnswer(True)
            with self._turn:
                self._own[wanted.node] = (wanted, nodes)
                self._turn.notify()
        if answer.isolated:
            self._known.setdefault(wanted.node, wanted)
        return answer

    def release(self, line: ReleaseLine) -> bool | None:
        """Makes an isolated node that passed a check available again. Returns whether it was isolated.

        Returns None if the node book did not answer; then nothing has changed.
        """
        done = self._ask(lambda: self._book.release(line))
        if done is not None:
            self._known.pop(line.node, None)
            self._own.pop(line.node, None)
        return done

    def lines(
        self, node: str = "", *, since_s: float = 0.0, kinds: Sequence[str] = ()
    ) -> list[AnyLine] | None:
        """Returns the events in the node book, as NodeBook.lines does; None if it did not answer in time."""
        return self._ask(lambda: self._book.lines(node, since_s=since_s, kinds=kinds))

    def attempts(self, since_s: float = 0.0) -> list[AttemptRan] | None:
        """Returns the attempts in the node book, as NodeBook.attempts does; None if it did not answer in
        time.
        """
        return self._ask(lambda: self._book.attempts(since_s))

    def turn(self) -> None:
        """Shows pending messages to the user. Never waits; to be called regularly."""
        while self._book.notes:
            self._tell(self._book.notes.pop(0))
        if self._trouble and not self._trouble_shown:
            self._trouble_shown = True
            self._tell(
                f"{self._trouble}: the run uses the last known isolated nodes, and keeps new entries in memory"
            )
        elif self._trouble_shown and not self._trouble:
            self._trouble_shown = False
            self._tell(f"the node book in {self.folder} can be used again")

    def close(self) -> None:
        """Waits up to `close_s` for the thread to write the queued events, and reports how many were not
        written.
        """
        with self._turn:
            self._closing = True
            self._turn.notify()
        if self._thread is not None:
            self._thread.join(self._close_s)
            left = len(self._lines) + len(self._ran)
            if left:
                self._tell(
                    f"the node book in {self.folder} could not be written: {counted(left, 'entry is', 'entries are')} lost"
                )
        self.turn()

    # Inside -------------------------------------------------------------------------------------------------

    def _ask(self, ask: Callable[[], _Answer]) -> _Answer | None:
        """Runs `ask` in the thread and returns its answer; None if it failed or took too long.

        A request that timed out before the thread took it is dropped.
        """
        answers: list[_Answer] = []
        done, given_up = threading.Event(), threading.Event()

        def asked() -> None:
            with suppress(NodeBookUnusable):
                if not given_up.is_set():
                    answers.append(self._fenced(ask))
            done.set()

        with self._turn:
            self._begin()
            self._asked.append(asked)
            self._turn.notify()
        if not done.wait(self._wait_s):
            given_up.set()
            self._trouble = (
                self._trouble or f"the node book in {self.folder} did not answer within {self._wait_s:g} s"
            )
        self.turn()
        return answers[0] if answers else None

    def _fenced(self, ask: Callable[[], _Answer]) -> _Answer:
        """Calls `ask` in the background thread, and notes why it failed. raises: NodeBookUnusable"""
        try:
            answer = ask()
        except NodeBookUnusable as error:
            self._trouble = str(error)
            raise
        if not self._own and not self._unwritten:
            self._trouble = ""  # not while lines could be read but not written
        return answer

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="node-book", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        retry_at_s = 0.0
        while True:
            with self._turn:
                while not (self._asked or self._closing or self._may_write(retry_at_s)):
                    waits = bool(self._lines or self._ran or self._own)
                    self._turn.wait(max(0.01, retry_at_s - time.monotonic()) if waits else None)
                asked = self._asked.popleft() if self._asked else None
            if asked is not None:
                asked()
                continue
            if not self._write():
                retry_at_s = time.monotonic() + RETRY_S
            if self._closing:
                break
        self._book.close()

    def _may_write(self, retry_at_s: float) -> bool:
        return bool(self._lines or self._ran or self._own) and time.monotonic() >= retry_at_s

    def _write(self) -> bool:
        with self._turn:
            lines, ran, own = list(self._lines), dict(self._ran), dict(self._own)
            self._lines.clear()
            self._ran.clear()
        try:
            if lines or ran:
                self._fenced(lambda: self._book.note(lines, ran.values()))
            for wanted, nodes in own.values():
                self._isolate_late(wanted, nodes)
        except NodeBookUnusable:
            with self._turn:
                kept = [*lines, *self._lines][-LINES_MAX:]
                self._lines.clear()
                self._lines.extend(kept)
                self._ran = {**ran, **self._ran}
                self._unwritten = True
            return False
        self._unwritten, self._trouble = False, ""
        return True

    def _isolate_late(self, wanted: Isolation, nodes: int) -> None:
        """Writes an isolation that was made while the node book did not answer. raises: NodeBookUnusable"""
        self._fenced(lambda: self._book.isolate(wanted, limit=self._limit, nodes=nodes))
        with self._turn:
            self._own.pop(wanted.node, None)

    def _tell(self, sentence: str) -> None:
        with suppress(OSError):
            self._say(sentence)

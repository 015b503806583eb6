"""Connects a run with the node book: writes the events of its nodes, and reads which nodes are excluded.

A problem with the node book delays the run at most by the stated wait.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from holdfast.core.job.decision import Decision
from holdfast.core.nodes.isolation_limit import IsolationLimit
from holdfast.core.nodes.lemon_evidence import WINDOW_DAYS, observed
from holdfast.core.nodes.lemons import Score, judge
from holdfast.core.nodes.notes import NodeNotes
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import NodeBookUnusable
from holdfast.journal.nodes.fleet_book import FleetBook
from holdfast.model.events import AnyEvent
from holdfast.model.nodes.book import Isolation
from holdfast.model.orders import IsolateNode
from holdfast.model.settings import RunSettings
from holdfast.settings.read import fleet_folder

DAY_S = 86_400.0
BY = "holdfast"


class FleetNotes:
    """Connection of one run with the node book. `nodes`: all nodes that the job may use.

    `tell`: prints a message.
    """

    def __init__(
        self,
        settings: RunSettings,
        nodes: Callable[[], int],
        clock: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        limit = IsolationLimit(share=settings.isolation_share_percent / 100)
        self._book = FleetBook(fleet_folder(settings), tell, limit=limit)
        self._notes = NodeNotes()
        self._nodes, self._clock, self._tell = nodes, clock, tell
        self._shadow = settings.policy.shadow
        self._shunned: frozenset[str] = frozenset()
        self._warnings: deque[str] = deque()

    def heard(self, event: AnyEvent, decision: Decision) -> None:
        """Records in the node book what a decision of the run says about nodes."""
        noted = self._notes.hear(event, decision)
        if noted.lines or noted.ran:
            self._book.note(noted.lines, noted.ran)

    def remember(self, event: AnyEvent, decision: Decision) -> None:
        """Processes a decision of a resumed run that is already recorded in the node book."""
        self._notes.hear(event, decision)

    def shunned(self) -> frozenset[str]:
        """Returns the nodes that any job or user has isolated.

        Called at every placement; blocks briefly at most.
        """
        isolated = self._book.isolated()
        for node in sorted(isolated.keys() - self._shunned):
            self._tell(f"{node} is isolated in the node book, and not used: {isolated[node].reason}")
        self._shunned = frozenset(isolated)
        return self._shunned

    def why_not_isolate(self, node: str, reason: str) -> str:
        """Isolates a node for all jobs and returns ""; or returns why that is refused: too many nodes were isolated
        within an hour.
        """
        if self._shadow:
            return "in shadow mode no node is isolated"
        why = self._notes.why(node) or reason
        wanted = Isolation(node=node, since_s=self._clock(), reason=why, by=BY, run=self._notes.run)
        answer = self._book.isolate(wanted, nodes=self._nodes())
        if answer.isolated:
            self._shunned |= {node}
            return ""
        return answer.why_not

    def isolate_ordered(self, decision: Decision) -> None:
        """Isolates the node of a single-machine job for other jobs, if the decision orders it."""
        for order in decision.orders:
            if isinstance(order, IsolateNode) and (why := self.why_not_isolate(order.node, order.reason)):
                self._tell(f"{order.node} is not isolated for other jobs: {why}")

    def warn_of(self, node: str) -> None:
        """Prints warnings that the node book contains about the only node of a run. Refuses nothing and does not
        block.
        """
        threading.Thread(target=self._look_up, args=(node,), name="node-history", daemon=True).start()

    def turn(self) -> None:
        """Prints pending messages. Never blocks."""
        while self._warnings:
            self._tell(self._warnings.popleft())
        self._book.turn()

    def close(self) -> None:
        self._book.close()

    # In a thread of its own ---------------------------------------------------------------------------------

    def _look_up(self, node: str) -> None:
        """Reads the node book in a thread, with a connection of its own, which may wait."""
        book = NodeBook(self._book.folder, read_only=True)
        with suppress(NodeBookUnusable):
            isolation = book.isolated().get(node)
            if isolation is not None:
                self._warnings.append(
                    f"this node, {node}, is isolated in the node book: {isolation.reason}; the run starts anyway, because there is no other node (release it: holdfast nodes release {node})"
                )
            score = self._lemon(book, node)
            if score is not None:
                self._warnings.append(
                    f"this node, {node}, is probably a lemon ({score.posterior:.0%}): {score.attributed} failures of "
                    f"its own in {score.days:.0f} days at work (why: holdfast nodes show {node})"
                )
        book.close()

    def _lemon(self, book: NodeBook, node: str) -> Score | None:
        since_s = self._clock() - WINDOW_DAYS * DAY_S
        if not book.lines(node, since_s=since_s, kinds=("incident",)):
            return None  # the usual case: nothing is held against it
        lines, attempts = book.lines(since_s=since_s), book.attempts(since_s)
        scores = judge(observed(lines, attempts, since_s=since_s)).scores
        return next((score for score in scores if score.node == node and score.named), None)

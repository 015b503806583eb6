"""Checks spare nodes ahead of time, so that a needed spare has already passed. Pure.

Checks run only while an attempt runs, and never on a node with a worker. They repeat after half the time for
which a pass is valid, so that it never expires. A node that fails is not used until it passes.
"""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from holdfast.core.workers.acts import Act, Send, SetNodeAside, Tell
from holdfast.core.workers.nodes import Node
from holdfast.model.checks import IDLE
from holdfast.model.events import CheckFinding, FindingNoted, NodesChecked
from holdfast.model.nodes.workers import CheckNode

LOOK_S = 5.0  # interval between searches for spares that are due for a check
STARTED_S = 20.0  # no checks within this time after the start of an attempt
ANSWER_S = 120.0  # a later answer belongs to another order


class SpareChecks:
    """Schedules the checks of spare nodes.

    `suite`: empty for no checks. `again_s`: how long a pass is valid, in seconds.
    """

    def __init__(self, suite: str, again_s: float) -> None:
        self.suite = suite if again_s > 0 else ""
        self._again_s = again_s
        self._asked_s: dict[str, float] = {}
        self._waits: set[str] = set()
        self._refused: set[str] = set()
        self._troubles: dict[str, tuple[CheckFinding, ...]] = {}
        self._attempt = 0
        self._since_s = 0.0  # of the attempt
        self._looked_s = float("-inf")

    def turn(
        self, nodes: Iterable[Node], used: Collection[str], attempt: int, at_s: float, epoch: int
    ) -> list[Act]:
        """Returns the check orders that are due.

        `used`: nodes of the running attempt; empty if none runs. `epoch`: how often the controller has
        resumed.
        """
        if not self.suite or not used:
            return []
        if attempt != self._attempt:
            self._attempt, self._since_s = attempt, at_s
        if at_s - self._since_s < STARTED_S or at_s - self._looked_s < LOOK_S:
            return []
        self._looked_s = at_s
        busy = set(used)
        due = [node.name for node in nodes if node.name not in busy and self._is_due(node, at_s)]
        for name in due:
            self._asked_s[name] = at_s
            self._waits.add(name)
        command = CheckNode(attempt=attempt + 1, suite=self.suite)
        return [Send(name, f"spare-{epoch}.{at_s:.0f}/check/{name}", command) for name in due]

    def checked(self, node: Node, answer: NodesChecked, at_s: float) -> list[Act] | None:
        """Handles the result of a node's check; returns None if the node is not a spare."""
        if node.name not in self._waits:
            return None
        self._waits.discard(node.name)
        if at_s - self._asked_s[node.name] > ANSWER_S:
            return None
        report = Tell(replace(answer, context=IDLE, troubles=self._new_of(node.name, answer)))
        why = answer.isolate.get(node.name, "") or answer.stop
        if not why:
            if node.name in self._refused and node.returning == "refused":
                node.returning = ""
            self._refused.discard(node.name)
            return [report]
        is_known = node.name in self._refused
        node.returning = "refused"
        self._refused.add(node.name)
        if is_known:
            return [report]
        text = f"the spare node {node.name} is not used, because its check found: {why}"
        noted = Tell(FindingNoted(at_s=at_s, finding="node-refused", text=text))
        return [report, noted, *([SetNodeAside(node.name, why)] if node.name in answer.isolate else [])]

    def _is_due(self, node: Node, at_s: float) -> bool:
        idle = node.known and node.is_reachable and not node.attempt
        away = node.lost or node.isolated or bool(node.down)
        mine = not node.returning or (node.returning == "refused" and node.name in self._refused)
        asked_s = self._asked_s.get(node.name, float("-inf"))
        return idle and not away and mine and at_s - asked_s >= self._again_s / 2

    def _new_of(self, name: str, answer: NodesChecked) -> tuple[CheckFinding, ...]:
        """Returns the node's warnings; none if they equal those of the last check."""
        before, self._troubles[name] = self._troubles.get(name), answer.troubles
        return () if before == answer.troubles else answer.troubles

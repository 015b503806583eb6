"""Chooses the copy of a lost journal among those that agents report. Pure.

Only some agents have a copy, and agents reach a new controller at different times: one without a copy says
nothing about the others.
"""

from msgspec import Struct

FIRST_S = 45.0  # for a first agent with a copy: a name of a Service may be known only after a while
OTHERS_S = 4.0  # for the others, from then on


class JournalCopy(Struct, frozen=True):
    """The copy of one agent: its journal and its last row; row 0: the agent has none."""

    node: str
    lineage: str
    seq: int


class CopyChoice:
    """The copies reported so far. `pods`: how many agents can report one. `begun_s`: when the first could."""

    def __init__(self, pods: int, begun_s: float) -> None:
        self._pods, self._until_s = pods, begun_s + FIRST_S
        self._found: dict[str, JournalCopy] = {}

    def hear(self, copy: JournalCopy, at_s: float) -> None:
        """Records the report of an agent, which may come again."""
        self._found[copy.node] = copy
        if copy.seq > 0:
            self._until_s = min(self._until_s, at_s + OTHERS_S)

    def is_over(self, at_s: float) -> bool:
        """Returns whether all agents have reported, or the time is over."""
        return len(self._found) >= self._pods or at_s >= self._until_s

    @property
    def best(self) -> JournalCopy | None:
        """Returns the copy with the most rows; None if no agent has one."""
        copies = [copy for copy in self._found.values() if copy.seq > 0]
        return max(copies, key=lambda copy: copy.seq, default=None)

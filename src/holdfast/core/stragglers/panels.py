"""Compares the own times of all ranks from one source, each rank with its peers, while ranks come and go.

Pure.
"""

from collections.abc import Mapping
from math import nan

from holdfast.core.stragglers.limits import StragglerSettings
from holdfast.core.stragglers.panel import Flag, Panel


class _Peers:
    """Ranks in the same position of the model, and their panel."""

    __slots__ = ("panel", "ranks")

    def __init__(self, ranks: list[int], panel: Panel) -> None:
        self.ranks = ranks
        self.panel = panel


class Panels:
    """Detects slow ranks among their peers.

    `peers`: position of each rank, under any name (such as a pipeline stage); ranks without one are peers of
    each other. Ranks alone in their position are compared with all such ranks, and only a change counts.
    """

    def __init__(
        self, settings: StragglerSettings, nodes: Mapping[int, str], peers: Mapping[int, str]
    ) -> None:
        self._settings = settings
        self._nodes = nodes
        self._names = peers
        self._known: frozenset[int] = frozenset()
        self._peers: list[_Peers] = []
        self._of: dict[int, tuple[_Peers, int]] = {}

    def add(self, step: int, times: Mapping[int, float], floor_s: float = 0.0) -> list[tuple[int, Flag]]:
        """Adds one step, and returns flags by rank: new ones, and those that have ended.

        A changed set of ranks resets all panels.
        """
        if len(times) > len(self._known) or not self._known.issuperset(times):
            self._begin(self._known.union(times))
        news = []
        for peers in self._peers:
            column = [times.get(rank, nan) for rank in peers.ranks]
            news += [(peers.ranks[flag.place], flag) for flag in peers.panel.add(step, column, floor_s)]
        return news

    def flags(self) -> dict[int, Flag]:
        """Returns the ranks that count as slow now, each with its flag."""
        return {
            peers.ranks[place]: flag for peers in self._peers for place, flag in peers.panel.flags.items()
        }

    def excess(self, rank: int, steps: int) -> float | None:
        """Returns the rank's excess over its peers in the last `steps` steps, as a share of their time; None
        if unknown.
        """
        if rank not in self._of:
            return None
        peers, place = self._of[rank]
        return peers.panel.excess(place, steps)

    @property
    def steps(self) -> int:
        return max((peers.panel.count for peers in self._peers), default=0)

    @property
    def noise(self) -> float:
        return max((peers.panel.noise for peers in self._peers), default=0.0)

    def _begin(self, ranks: frozenset[int]) -> None:
        self._known = ranks
        positions: dict[str, list[int]] = {}
        for rank in sorted(ranks):
            positions.setdefault(self._names.get(rank, ""), []).append(rank)
        alone = [ranks[0] for ranks in positions.values() if len(ranks) == 1]
        groups = [(ranks, False) for ranks in positions.values() if len(ranks) > 1]
        if len(alone) > 1:
            groups.append((sorted(alone), True))
        self._peers = []
        for members, past_only in groups:
            named = all(rank in self._nodes for rank in members)
            panel = Panel(
                len(members),
                self._settings,
                job_ranks=len(ranks),
                past_only=past_only,
                teams=[self._nodes[rank] for rank in members] if named else (),
            )
            self._peers.append(_Peers(members, panel))
        self._of = {rank: (peers, at) for peers in self._peers for at, rank in enumerate(peers.ranks)}

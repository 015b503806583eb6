"""Finds a node for each worker to be placed, and asks the engine for more nodes if there are too few.

Pure.
"""

from collections.abc import Iterable

from holdfast.core.plurals import counted
from holdfast.core.workers.acts import Act, MoreNodes, Tell
from holdfast.core.workers.nodes import names, placed
from holdfast.core.workers.orders import Placing
from holdfast.core.workers.roster import Roster
from holdfast.core.workers.standby import Standbys
from holdfast.model.events import Placed, PlacementFailed, WorkersPlaced
from holdfast.model.orders import PlaceWorkers


class Placement:
    """The order to place workers that is in progress, if any.

    `gather_s`: seconds to wait for nodes that may still connect.
    """

    def __init__(self, roster: Roster, standbys: Standbys, gather_s: float) -> None:
        self._roster = roster
        self._standbys = standbys
        self._gather_s = gather_s
        self._placing: Placing | None = None

    def begin(self, order: PlaceWorkers, shunned: Iterable[str], at_s: float) -> list[Act]:
        """Begins an order to place workers on nodes. `shunned`: nodes that the node book excludes."""
        self._placing = placing = Placing(order, at_s)
        return self._place(placing, shunned, at_s)

    def cancel(self) -> None:
        """Cancels the order in progress to place workers."""
        self._placing = None

    def no_more_nodes(self, reason: str) -> None:
        """Processes the engine's answer that it cannot provide more nodes."""
        if self._placing is not None:
            self._placing.no_more = reason
            self._roster.changed = True

    def turn(self, shunned: Iterable[str], at_s: float, *, always: bool) -> list[Act]:
        """Tries again to place the workers, after the state of nodes has changed.

        `always`: try even if more nodes are missing than can have become free since the last try.
        """
        placing = self._placing
        if placing is None or not self._roster.changed:
            return []
        # One change frees at most one node: while thousands join, a full search after each would be slow.
        placing.missing -= 1
        return self._place(placing, shunned, at_s) if always or placing.missing <= 0 else []

    def _place(self, placing: Placing, shunned: Iterable[str], at_s: float) -> list[Act]:
        order = placing.order
        without = {*order.without_nodes, *order.keep_nodes, *shunned}
        team = self._roster.team
        free = self._roster.usable(without)
        found = placed(order.workers, team.nodes, free)
        if found is None:
            placing.missing = len(order.workers) - len(free)
            return self._too_few(placing, free, without, at_s)
        self._placing = None
        kept = {worker: node for worker, node in team.nodes.items() if node in order.keep_nodes}
        team.nodes = {**team.nodes, **kept, **found}
        where = tuple(Placed(worker, node) for worker, node in found.items())
        placed_there = Tell(WorkersPlaced(at_s=at_s, attempt=order.attempt, placed=where))
        return [placed_there, *self._standbys.begin(order.attempt, found, self._roster)]

    def _too_few(self, placing: Placing, free: list[str], without: set[str], at_s: float) -> list[Act]:
        """Waits for nodes that may join, then asks the engine for others, then reports that there are too
        few.
        """
        keep = placing.order.keep_nodes
        wanted = len(placing.order.workers)
        hopeful = self._roster.hopeful(without)
        waits = len(hopeful) >= wanted and at_s - placing.since_s < self._gather_s
        if placing.failed or waits:
            return []
        if not placing.more_asked:
            placing.more_asked = True
            isolated = {node.name for node in self._roster.nodes.values() if node.isolated}
            never_again = (without | isolated) - set(keep)
            return [MoreNodes(len(keep) + wanted, tuple(sorted(never_again)))]
        if placing.no_more is None:
            return []
        placing.failed = True
        away = names(name for name in hopeful if name not in free)
        text = f"{counted(wanted, 'worker needs', 'workers need')} a node and {counted(len(free), 'is', 'are')} free; {placing.no_more}"
        text += f"; not connected: {away}" if away else ""
        known = [node for node in self._roster.nodes.values() if node.known]
        hopeless = sum(1 for node in known if not node.isolated) < len(keep) + wanted
        failed = PlacementFailed(
            at_s=at_s, attempt=placing.order.attempt, reason=text, hopeless=hopeless and not away
        )
        return [Tell(failed)]

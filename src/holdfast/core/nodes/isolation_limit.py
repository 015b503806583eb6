"""The circuit breaker of isolation: how many nodes of a fleet may be isolated within an hour, over all its jobs. Pure.

A fault of the network, of storage or of Holdfast itself makes many healthy nodes look broken at once. Whoever takes
them all away has ended every job. Above the limit a node is only named, and the job goes on without isolation.
"""

from collections.abc import Mapping

from msgspec import Struct

WINDOW_S = 3600.0


class IsolationLimit(Struct, frozen=True, kw_only=True):
    """`share`: of the fleet's nodes, 0..1. At least one node is always allowed."""

    share: float = 0.05
    window_s: float = WINDOW_S

    def allowed(self, nodes: int) -> int:
        """How many nodes of a fleet of so many may be isolated within the window."""
        return max(1, int(self.share * nodes + 1e-9))


def why_not(node: str, at_s: float, recent: Mapping[str, float], nodes: int, limit: IsolationLimit) -> str:
    """Empty when the node may be isolated; else why not, for people.

    `recent`: when each node was last isolated, by a job; `nodes`: how many the fleet has that are known of.
    A node that is already among the recent ones costs nothing more. A time in the future, of a machine whose clock is
    ahead, counts as now.
    """
    within = {name for name, since_s in recent.items() if at_s - since_s < limit.window_s}
    if node in within:
        return ""
    allowed = limit.allowed(nodes)
    if len(within) < allowed:
        return ""
    return (
        f"{len(within)} of {nodes} nodes were isolated within {limit.window_s / 60:.0f} minutes, and no more than "
        f"{allowed} may be ({limit.share:.0%}, at least one): so many at once speak for a cause that they share"
    )

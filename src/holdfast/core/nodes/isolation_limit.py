"""Limits how many nodes of a fleet may be isolated within an hour, over all jobs. Pure.

A fault of the network, of storage or of Holdfast itself makes many healthy nodes look broken at once.
Isolating them all would end every job. Above the limit a node is only reported, and the job continues on it.
"""

from collections.abc import Mapping

from msgspec import Struct

WINDOW_S = 3600.0


class IsolationLimit(Struct, frozen=True, kw_only=True):
    """The maximum share of a fleet's nodes, 0 to 1, that may be isolated within a time window; one is always
    allowed.
    """

    share: float = 0.05
    window_s: float = WINDOW_S

    def allowed(self, nodes: int) -> int:
        """Returns how many of a fleet's `nodes` may be isolated within the window."""
        return max(1, int(self.share * nodes + 1e-9))


def why_not(node: str, at_s: float, recent: Mapping[str, float], nodes: int, limit: IsolationLimit) -> str:
    """Returns the reason why a node may not be isolated; empty if it may.

    `recent`: when each node was last isolated by a job; `nodes`: number of known nodes of the fleet. A node
    among the recent ones is not counted twice. A time in the future, from a machine whose clock is ahead,
    counts as now.
    """
    within = {name for name, since_s in recent.items() if at_s - since_s < limit.window_s}
    if node in within:
        return ""
    allowed = limit.allowed(nodes)
    if len(within) < allowed:
        return ""
    return (
        f"{len(within)} of {nodes} nodes were isolated within {limit.window_s / 60:.0f} minutes, and no more than "
        f"{allowed} may be ({limit.share:.0%}, at least one): so many at once suggest a common cause"
    )

"""Computes clock offsets between nodes from each node's time stamp and the arrival time of its answer. Pure.

An answer takes up to some tenths of a second, about equally long from all nodes, so each node is compared
with the median of all; with two nodes, only a difference larger than the travel time is reported.
"""

from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from holdfast.model.checks import PASS, PEERS, WARN, Finding, NodeChecks, Outcome
from holdfast.model.signatures import Words

CHECK, AREA = "host-clock", "host"
APART_S = 0.1  # beyond this offset, log lines of several nodes cannot be put in order
WAY_S = 0.5  # an answer may take this long
NODES_MIN = 3
ADVICE = Words(
    en="Run chrony or another NTP client on all nodes, with the same servers.",
    zh="请在所有节点上运行 chrony 或其他 NTP 客户端，并使用相同的时间服务器。",
)


def clocks_compared(nodes: Sequence[NodeChecks]) -> tuple[NodeChecks, ...]:
    """Returns the nodes, each with an outcome of the clock check: the offset in seconds from the other nodes, ahead
    (+) or behind (-).
    """
    ahead = {node.node: node.at_s - node.heard_s for node in nodes if node.heard_s and node.outcomes}
    if len(ahead) < 2:
        return tuple(nodes)
    middle = median(ahead.values()) if len(ahead) >= NODES_MIN else 0.0
    ways = [abs(one - middle) for one in ahead.values()]
    limit_s = APART_S + 3 * median(ways) if len(ahead) >= NODES_MIN else WAY_S
    return tuple(
        _with(node, ahead[node.node] - middle, limit_s, len(ahead)) if node.node in ahead else node
        for node in nodes
    )


def _with(node: NodeChecks, ahead_s: float, limit_s: float, nodes: int) -> NodeChecks:
    is_off = abs(ahead_s) > limit_s
    side = "ahead of" if ahead_s > 0 else "behind"
    finding = Finding(
        status=WARN if is_off else PASS,
        measured=f"{ahead_s:+.2f} s against {nodes - 1} other nodes, ± {limit_s:.2f} s",
        expected=f"less than {APART_S:g} s",
        whence=PEERS,
        why=f"the clock is {abs(ahead_s):.2f} s {side} those of the other nodes" if is_off else "",
        advice=ADVICE,
    )
    outcome = Outcome(check=CHECK, area=AREA, status=finding.status, findings=(finding,))
    return replace(node, outcomes=(*node.outcomes, outcome))

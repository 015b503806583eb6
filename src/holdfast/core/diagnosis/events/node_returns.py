"""Nodes that Slurm's controller missed for a while, and that came back before any job was lost with them. Pure.

And a kubelet that waits for its network while it starts, until its node is ready, or that the API server answers again;
a service that systemd started again; a processor that was hot for a moment.

slurmctld: error: Nodes gpu-[3-4] not responding, setting DOWN
slurmctld: Node gpu-3 now responding
slurmctld: node gpu-4 returned to service
"""

from collections.abc import Mapping, Sequence

from holdfast.core.diagnosis.candidates import Ruling
from holdfast.late_pattern import late
from holdfast.model.matches import Match
from holdfast.model.signatures import Signature

AWAY = frozenset({"slurmctld-nodes-not-responding", "slurmctld-node-down"})
BACK = "slurmctld-node-responds"
# What tells that a job was lost with its node: then that the node came back mends nothing.
LOST = frozenset({"slurmctld-killing-on-failed-node", "slurm-cancelled-node-failure", "srun-node-failure"})
UNWELL, READY = "k8s-kubelet-unwell", "k8s-kubelet-ready"
LEASE, ANSWERED = "lease", "k8s-lease-conflict"
FAILED, AGAIN = late(r"^service-of-\w+-failed$"), "service-started-again"
AGAIN_MAX = 2  # more often, and it does not help
HOT, COOL = "cpu-thermal-throttle", "cpu-thermal-normal"
HOT_MAX = 16  # more often is no moment: it is slowed again and again
STEM = late(r"^[A-Za-z][A-Za-z_-]*")  # of a node's name, or of a list of them
LIST = late(r"[\[,]")


def nodes_that_returned(matches: Sequence[Match], signatures: Mapping[str, Signature]) -> dict[int, Ruling]:
    """By id() of the match of a node that does not answer: context, where it answers again further down."""
    lost = any(one.signature in LOST for one in matches)
    back = [one for one in matches if one.signature == BACK and not lost]
    cool = [one for one in matches if one.signature == COOL]
    ready = [one for one in matches if one.signature == READY]
    answered = [one for one in matches if one.signature == ANSWERED]
    again = [one for one in matches if one.signature == AGAIN and one.count <= AGAIN_MAX]
    found: dict[int, Ruling] = {}
    for one in matches:
        if (
            one.signature in AWAY
            and any(_is_back(one, other) for other in back)
            or one.signature == UNWELL
            and any(_comes_later(other, one) for other in (*ready, *(answered if LEASE in one.text else ())))
            or FAILED.match(one.signature)
            and any(_comes_later(other, one) and _is_same_service(other, one) for other in again)
            or one.signature == HOT
            and one.count <= HOT_MAX
            and any(_comes_later(other, one) and other.count >= one.count for other in cool)
        ):
            known = signatures[one.signature]
            found[id(one)] = Ruling(
                category=one.category, role="context", severity=known.severity, weight=known.weight
            )
    return found


def _comes_later(one: Match, other: Match) -> bool:
    return one.source == other.source and one.last_offset > other.last_offset


def _is_same_service(one: Match, other: Match) -> bool:
    return one.captures.get("name", "") == other.captures.get("name")


def _is_back(away: Match, back: Match) -> bool:
    """Lines that differ in their numbers only are one match: a list of nodes came back as often as its line stands."""
    if not _comes_later(back, away):
        return False
    gone, here = away.captures.get("host", ""), back.captures.get("host", "")
    if not LIST.search(gone) and back.count == 1:
        return gone == here
    stems = STEM.match(gone), STEM.match(here)
    return bool(stems[0] and stems[1] and stems[0][0] == stems[1][0])

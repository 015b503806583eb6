"""Finds node faults that had ended before any job was lost. Pure.

Examples are a node that responds to its cluster's controller again; a node agent that becomes ready after
waiting for its network or the API server; a service that systemd restarted; a CPU that was briefly too hot.

    slurmctld: error: Nodes gpu-[3-4] not responding, setting DOWN
    slurmctld: Node gpu-3 now responding
    slurmctld: node gpu-4 returned to service
"""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.events.context import as_context
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.late_pattern import late
from holdfast.model.matches import Match

AGAIN_MAX = 2  # of a service: with more starts, they do not help
HOT_MAX = 16  # more often, and the processor is slowed again and again
STEM = late(r"^[A-Za-z][A-Za-z_-]*")  # of a node's name, or of a list of them
LIST = late(r"[\[,]")


def nodes_that_returned(matches: Sequence[Match], known: KnowledgeBase) -> dict[int, Ruling]:
    """Returns a ruling "context" for each match of a node fault that had ended according to a later line. Keys: id()
    of the match.
    """
    lost = any(known.has("job-lost-with-node", one) for one in matches)
    back = [one for one in matches if known.has("node-back", one) and not lost]
    cool = [one for one in matches if known.has("processor-cool", one)]
    ready = [one for one in matches if known.has("node-agent-ready", one)]
    answered = [one for one in matches if known.has("lease-answered", one)]
    again = [one for one in matches if known.has("service-started-again", one) and one.count <= AGAIN_MAX]

    def is_over(one: Match) -> bool:
        if known.has("node-away", one):
            return any(_is_back(one, other) for other in back)
        if known.has("node-not-ready", one) and known.says("said-by-kubelet", one.text):
            return any(_comes_later(other, one) for other in ready)
        if known.has("node-agent-unwell", one):
            leases = answered if known.says("waits-for-lease", one.text) else ()
            return any(_comes_later(other, one) for other in (*ready, *leases))
        if known.has("service-failed", one):
            return any(_comes_later(other, one) and _is_same_service(other, one) for other in again)
        if known.has("ended-unit", one) and known.says("line-of-systemd", one.text):
            return any(_comes_later(other, one) and _is_about(other, one) for other in again)
        return (
            known.has("processor-hot", one)
            and one.count <= HOT_MAX
            and any(_comes_later(other, one) and other.count >= one.count for other in cool)
        )

    return {id(one): as_context(one, known) for one in matches if is_over(one)}


def _comes_later(one: Match, other: Match) -> bool:
    return one.source == other.source and one.last_offset > other.last_offset


def _is_same_service(one: Match, other: Match) -> bool:
    return one.captures.get("name", "") == other.captures.get("name")


def _is_about(again: Match, ended: Match) -> bool:
    """Returns whether the unit that was started again is the one that a line of systemd names."""
    name = again.captures.get("name")
    return bool(name) and f" {name}.service: " in ended.text


def _is_back(away: Match, back: Match) -> bool:
    """Returns whether the node, or one node of the list, recovered.

    Lines that differ only in numbers are one match.
    """
    if not _comes_later(back, away):
        return False
    gone, here = away.captures.get("host", ""), back.captures.get("host", "")
    if not LIST.search(gone) and back.count == 1:
        return gone == here
    stems = STEM.match(gone), STEM.match(here)
    return bool(stems[0] and stems[1] and stems[0][0] == stems[1][0])

"""Recognizes a pod's wait that is over: its events show that it could not start at first, and then did. Pure.

Also of an init container that was started again and again, once the pod goes on to its next container.

Warning  FailedScheduling  9m  default-scheduler  0/12 nodes are available: 12 Insufficient nvidia.com/gpu.
Normal   Scheduled         8m  default-scheduler  Successfully assigned train/worker-0 to gpu-3
Normal   Started           7m  kubelet            Started container pytorch
"""

from collections import defaultdict
from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.events.context import as_context
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match


def waits_that_ended(matches: Sequence[Match], known: KnowledgeBase) -> dict[int, Ruling]:
    """By id() of the match of a wait: context, if a later line shows that the same pod continued."""
    placed: dict[int, list[Match]] = defaultdict(list)
    for one in matches:
        if known.has("pod-goes-on", one):
            placed[one.source].append(one)

    def has_ended(one: Match) -> bool:
        later = [other for other in placed.get(one.source, ()) if _is_later_for_pod(other, one, known)]
        if known.has("waits-for-placement", one):
            return any(known.says("pod-placed", other.text) for other in later)
        started = [other for other in later if known.says("container-started", other.text)]
        if known.has("waits-for-container", one):
            return bool(started)
        return known.has("container-backoff", one) and any(_is_next(other, one, known) for other in started)

    return {id(one): as_context(one, known) for one in matches if placed and has_ended(one)}


def _is_next(started: Match, backoff: Match, known: KnowledgeBase) -> bool:
    """Whether another container was started: only where the one before has done its work."""
    again, container = known.found("container-started-again", backoff.text), started.captures.get("container")
    return again is not None and bool(container) and container != again["name"]


def _is_later_for_pod(placed: Match, wait: Match, known: KnowledgeBase) -> bool:
    """Whether it stands below the wait and is about the same pod. Some lists name the pod of each line, others only
    above.
    """
    if placed.last_offset <= wait.last_offset:
        return False
    waiting, placed_pod = known.found("pod-named", wait.text), known.found("pod-named", placed.text)
    if waiting is None or placed_pod is None:
        return waiting is None and placed_pod is None
    return waiting["name"] == placed_pod["name"]

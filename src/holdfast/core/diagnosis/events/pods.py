"""Recognises waits of pods that ended: a pod could not start at first, and then did. Pure.

The same holds for an init container that was restarted several times, once the pod starts its next container.

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
    """Returns which matches are only context: a pod had to wait, and a later line shows that it waits no longer.

    Keys: id() of the match.
    """
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
    """Returns whether a different container was started, which happens only after the previous one has
    finished.
    """
    again, container = known.found("container-started-again", backoff.text), started.captures.get("container")
    return again is not None and bool(container) and container != again["name"]


def _is_later_for_pod(placed: Match, wait: Match, known: KnowledgeBase) -> bool:
    """Returns whether a line is below the wait and about the same pod.

    Some event lists name the pod in each line, others only in a header.
    """
    if placed.last_offset <= wait.last_offset:
        return False
    waiting, placed_pod = known.found("pod-named", wait.text), known.found("pod-named", placed.text)
    if waiting is None or placed_pod is None:
        return waiting is None and placed_pod is None
    return waiting["name"] == placed_pod["name"]

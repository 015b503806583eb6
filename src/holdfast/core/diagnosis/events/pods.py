"""What Kubernetes says of a pod that could not start at first, and then did: its events tell both. Pure.

So of an init container that was started again and again, once the pod goes on to its next container.

Warning  FailedScheduling  9m  default-scheduler  0/12 nodes are available: 12 Insufficient nvidia.com/gpu.
Normal   Scheduled         8m  default-scheduler  Successfully assigned train/worker-0 to gpu-3
Normal   Started           7m  kubelet            Started container pytorch
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from holdfast.core.diagnosis.candidates import Ruling
from holdfast.late_pattern import late
from holdfast.model.matches import Match
from holdfast.model.signatures import Signature

PLACED = "k8s-scheduled"
BACKOFF = "k8s-backoff"
# What keeps a pod from starting, and is over once it is placed or its container runs.
ENDED_BY = {
    "k8s-failed-scheduling": "Successfully assigned",
    "k8s-mount-failed": "Started container",
    "k8s-mount-of-nothing": "Started container",
    "k8s-no-gpu-runtime": "Started container",
    "k8s-sandbox-failed": "Started container",
    "k8s-image-pull": "Started container",
}
# `kubectl get events` names the pod of each line, `kubectl describe` that of all of them, above.
AGAIN = late(r"\bfailed container (?P<name>[\w-]+)")  # which container was started again
POD = late(r"\bpods?/(?P<name>[\w.-]+)")


def waits_that_ended(matches: Sequence[Match], signatures: Mapping[str, Signature]) -> dict[int, Ruling]:
    """By id() of the match of a wait: context, where a later line of the log says that the same pod went on."""
    placed: dict[int, list[Match]] = defaultdict(list)
    for one in matches:
        if one.signature == PLACED:
            placed[one.source].append(one)
    found: dict[int, Ruling] = {}
    for one in matches:
        words = ENDED_BY.get(one.signature)
        later = placed.get(one.source, ())
        if (words and any(_ends(one, other, words) for other in later)) or (
            one.signature == BACKOFF and any(_goes_on(one, other) for other in later)
        ):
            known = signatures[one.signature]
            found[id(one)] = Ruling(
                category=one.category, role="context", severity=known.severity, weight=known.weight
            )
    return found


def _goes_on(backoff: Match, placed: Match) -> bool:
    """Whether the same pod started another container later: only where the one before has done its work."""
    again, container = AGAIN.search(backoff.text), placed.captures.get("container")
    if again is None or not container or container == again["name"]:
        return False
    return _ends(backoff, placed, "Started container")


def _ends(wait: Match, placed: Match, words: str) -> bool:
    if words not in placed.text or placed.last_offset <= wait.last_offset:
        return False
    waiting, placed_pod = POD.search(wait.text), POD.search(placed.text)
    if waiting is None or placed_pod is None:
        return waiting is None and placed_pod is None
    return waiting["name"] == placed_pod["name"]

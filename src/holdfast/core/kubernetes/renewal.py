"""Tracks pods whose containers are all restarted in place, because a container beside the training has failed. Pure.

The rung between a restart in place and another pod: the agent ends with `RENEW`, and the kubelet ends and starts all
containers of the pod, init containers too. The pod keeps its node, address, devices and volumes (/dev/shm as well), so
no scheduler, image or volume is waited for. Where the pod's container has no such rule the pod is evicted instead; a
kubelet that does not know the rule ends the pod, which its owner then replaces.

source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-all-containers,
github.com/kubernetes/enhancements, keps/sig-node/5532-restart-all-containers-on-container-exits: no grace period, no
preStop, phase Pending meanwhile, restart counts grow, the back-off of restarted containers holds
"""

from typing import Literal

from msgspec import Struct

from holdfast.core.kubernetes.words import where
from holdfast.model.kubernetes import PodState

BACK_S = 90.0  # to be running again: a minute as the KEP has it, and one back-off of 10 s
Phase = Literal["", "restarting", "back"]


class _Open(Struct):
    pod: str
    since_s: float
    restarts: int


class Renewals:
    """Pods by uid that restart now."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def begin(self, pod: PodState, at_s: float) -> None:
        self._open[pod.uid] = _Open(pod.name, at_s, pod.restarts)

    def is_open(self, uid: str) -> bool:
        return uid in self._open

    def saw(self, pod: PodState) -> Phase:
        """Returns where a pod is in its restart; "" if it is in none, or has ended instead."""
        known = self._open.get(pod.uid)
        if known is None:
            return ""
        if pod.phase in ("Succeeded", "Failed") or pod.deleting:
            del self._open[pod.uid]
            return ""
        if pod.running and pod.restarts > known.restarts:
            del self._open[pod.uid]
            return "back"
        return "restarting"

    def gone(self, uid: str) -> None:
        self._open.pop(uid, None)

    def overdue(self, at_s: float) -> list[str]:
        """Returns the names of pods that did not come back in time; they are no longer waited for."""
        late = [uid for uid, one in self._open.items() if at_s - one.since_s >= BACK_S]
        return [self._open.pop(uid).pod for uid in late]


def note(pod: PodState) -> str:
    how = "all containers of its pod restart" if pod.is_renewable else "its pod is replaced"
    return f"{where(pod)}: container {pod.broken}; the training continues, and {how} if the job restarts"


def why(pod: PodState) -> str:
    """Returns in one line why a pod is renewed."""
    how = (
        "all its containers restart in place" if pod.is_renewable else "it is evicted, and another pod comes"
    )
    return f"{where(pod)}: container {pod.broken}, which nothing restarts; {how}"

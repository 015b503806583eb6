"""Collects evidence that pods with silent agents are dead, so that no healthy pod is removed. Pure.

The silence of the agent is the first evidence. The second is a kubelet that does not respond to a request for
the pod's log, twice, at least `APART_S` apart, while the API server itself responds. A kubelet that responds
clears the count.

source: https://kubernetes.io/docs/concepts/architecture/control-plane-node-communication/: the API server
fetches logs from the kubelet of the pod's node
"""

from msgspec import Struct

PROBES = 2
APART_S = 2.0
HOLDS_S = 30.0  # an older silence proves nothing
AGAIN_S = 2.0  # between probes of one pod
LOST_AGAIN_S = 5.0  # the same, once it is lost
GIVE_UP_S = 180.0  # a lost pod whose kubelet answers all the time is no longer probed


class _Doubt(Struct):
    """The evidence about one pod. `lost_s`: since when the controller counts it as lost.

    `silences_s`: times at which its kubelet was silent, since its last response.
    """

    lost_s: float | None = None
    probed_s: float = float("-inf")
    silences_s: list[float] = []


class Doubts:
    """The evidence about all pods with silent agents."""

    def __init__(self) -> None:
        self._doubts: dict[str, _Doubt] = {}

    @property
    def lost_ones(self) -> list[str]:
        return [name for name, doubt in self._doubts.items() if doubt.lost_s is not None]

    def lost(self, name: str, at_s: float) -> None:
        doubt = self._of(name)
        if doubt.lost_s is None:
            doubt.lost_s = at_s

    def forget(self, name: str) -> None:
        self._doubts.pop(name, None)

    def may_probe(self, name: str, at_s: float) -> bool:
        """Returns True if it is time to test a pod's kubelet; the test then counts as started."""
        doubt = self._of(name)
        if doubt.lost_s is not None and at_s - doubt.lost_s > GIVE_UP_S:
            return False
        again_s = AGAIN_S if doubt.lost_s is None or doubt.silences_s else LOST_AGAIN_S
        if at_s - doubt.probed_s < again_s:
            return False
        doubt.probed_s = at_s
        return True

    def probed(self, name: str, *, answered: bool, at_s: float) -> None:
        doubt = self._of(name)
        if answered:
            doubt.silences_s = []
        elif not doubt.silences_s or at_s - doubt.silences_s[-1] >= APART_S:
            doubt.silences_s = [*doubt.silences_s, at_s][-PROBES:]

    def is_proven(self, name: str, at_s: float) -> bool:
        """Returns True if a pod is lost, and its kubelet was silent often enough recently."""
        doubt = self._doubts.get(name)
        if doubt is None or doubt.lost_s is None or len(doubt.silences_s) < PROBES:
            return False
        return at_s - doubt.silences_s[-1] <= HOLDS_S

    def _of(self, name: str) -> _Doubt:
        return self._doubts.setdefault(name, _Doubt())

"""Decides whether a pod has ended while the Kubernetes API server is unreachable, by connections to its
agent. Pure.

The first sign is the agent's connection to the controller, which was closed or is silent. The second is that
the kernel of the pod's host refuses a new connection to the agent's port, twice, `APART_S` seconds apart,
although the port accepted one before. The agent is the first process of its container, so the container has
ended. A frozen pod still accepts connections, and a pod behind a network failure refuses none: neither counts
as ended.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

REFUSALS = 2
APART_S = 0.8
HOLDS_S = 10.0  # an older refusal proves nothing
DOUBT_S = 8.0  # since the controller last asked about the pod
FIRST_S, FIRST_TRIES = 2.0, 7  # before the second try, then twice as long each time; and how many
PRESUMED_AGAIN_S = 5.0
AT_ONCE = 8  # first tries in one turn

Answer = Literal["accepted", "refused", "none"]


class _Knocks(Struct):
    """State of the probes of one pod.

    `reached`: its port has accepted a connection. `asked_s`: when the controller last lost contact with its
    agent.
    """

    reached: bool = False
    tries: int = 0
    asked_s: float = float("-inf")
    knocked_s: float = float("-inf")
    refusals_s: list[float] = []
    presumed: bool = False


class Knocks:
    """Probes of the agents' ports of all pods.

    `presumed`: pods reported as ended, until their port accepts a connection.
    """

    def __init__(self) -> None:
        self._pods: dict[str, _Knocks] = {}

    def ask(self, name: str, at_s: float) -> None:
        """Records that the controller has lost contact with the agent of a pod, so that the agent's port is
        probed.
        """
        self._of(name).asked_s = at_s

    def joined(self, name: str) -> None:
        """Records that the agent of a pod has connected: if its port was never reached, it is probed once more at
        once, as it listens now. The connection itself does not show that the port accepts any.
        """
        one = self._pods.get(name)
        if one is not None and not one.reached:
            one.tries, one.knocked_s = min(one.tries, FIRST_TRIES - 1), float("-inf")

    def forget(self, name: str) -> None:
        self._pods.pop(name, None)

    def due(self, names: Iterable[str], at_s: float) -> list[str]:
        """Returns the pods to probe now, and records the probe. `names`: the pods that are running."""
        found, first = [], 0
        for name in names:
            one = self._of(name)
            if not one.reached:
                wait_s = FIRST_S * 2.0 ** max(0, one.tries - 1)
                if first >= AT_ONCE or one.tries >= FIRST_TRIES or at_s - one.knocked_s < wait_s:
                    continue
                first += 1
                one.tries += 1
            elif one.presumed:
                if at_s - one.knocked_s < PRESUMED_AGAIN_S:
                    continue
            elif at_s - one.asked_s > DOUBT_S or at_s - one.knocked_s < APART_S:
                continue
            one.knocked_s = at_s
            found.append(name)
        return found

    def answered(self, name: str, answer: Answer, at_s: float) -> bool:
        """Records the result of a probe.

        Returns whether a pod that was reported as ended is still running.
        """
        one = self._of(name)
        if answer == "accepted":
            one.reached, one.refusals_s, one.asked_s = True, [], float("-inf")
            was, one.presumed = one.presumed, False
            return was
        if answer == "refused" and one.reached and at_s - one.asked_s <= DOUBT_S:
            if not one.refusals_s or at_s - one.refusals_s[-1] >= APART_S:
                one.refusals_s = [*one.refusals_s, at_s][-REFUSALS:]
        return False

    def presume(self, name: str, at_s: float) -> bool:
        """Returns whether the pod has ended, by its failed probes; True only once."""
        one = self._pods.get(name)
        if one is None or one.presumed or len(one.refusals_s) < REFUSALS:
            return False
        one.presumed = at_s - one.refusals_s[0] <= HOLDS_S
        return one.presumed

    def _of(self, name: str) -> _Knocks:
        return self._pods.setdefault(name, _Knocks())

"""Decides which nodes get the taint `node.kubernetes.io/out-of-service`, and when it is removed. Pure.

The taint ends all pods of a node and detaches their volumes at once, so it needs two independent proofs that the node
is dead: the agent of a pod there was lost, and the cluster reports the node as Ready Unknown, because its kubelet
renews no Lease. A node that is Ready again loses the taint, whichever job of Holdfast had set it.

source: https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown (the taint has
to be removed by hand once the node has recovered)
"""

from msgspec import Struct

from holdfast.model.kubernetes import NodeState, RestoreNode, TakeOutOfService

HOLDS_S = 300.0  # after a lost agent, within which the cluster's report has to follow
READY, UNKNOWN = "True", "Unknown"


class _Lost(Struct):
    """A lost pod. `at_s`: time of its loss, in seconds of the engine's clock."""

    pod: str
    at_s: float


class OutOfService:
    """The nodes with lost agents, and those with the taint."""

    def __init__(self) -> None:
        self._lost: dict[str, _Lost] = {}
        self._asked: dict[
            str, str
        ] = {}  # nodes with a pending request: READY or UNKNOWN, the state that it is for

    def agent_lost(self, node: str, pod: str, at_s: float) -> None:
        """Records the first proof that a node is dead: the agent of a pod on it does not respond."""
        if node:
            self._lost[node] = _Lost(pod, at_s)

    def agent_returned(self, pod: str) -> None:
        """Withdraws the first proof that a node is dead, because the agent of a pod there is connected again."""
        self._lost = {node: one for node, one in self._lost.items() if one.pod != pod}

    def refused(self, node: str) -> None:
        """Records that a request about the node failed; the node's next state may repeat it."""
        self._asked.pop(node, None)

    def judge(self, node: NodeState, at_s: float) -> TakeOutOfService | RestoreNode | None:
        """Returns the request that the state of a node calls for; None if there is none."""
        if node.ready == READY:
            self._lost.pop(node.name, None)
            if node.is_out_of_service and self._asked.get(node.name) != READY:
                self._asked[node.name] = READY
                return RestoreNode(node=node.name)
            if not node.is_out_of_service:
                self._asked.pop(node.name, None)
            return None
        lost = self._lost.get(node.name)
        if lost is None or node.ready != UNKNOWN or at_s - lost.at_s > HOLDS_S:
            return None
        if node.is_out_of_service or self._asked.get(node.name) == UNKNOWN:
            return None
        self._asked[node.name] = UNKNOWN
        return TakeOutOfService(node=node.name, pod=lost.pod)

"""Makes the engine's requests in a thread, in order, each until the API server has responded.

An unreachable server delays them; a rejection is reported once. Every request may be made twice without harm.
"""

import queue
import random
import threading
from collections.abc import Callable
from typing import NamedTuple

from holdfast.engines.kubernetes.connection import (
    Connection,
    RequestFailed,
    ServerAway,
)
from holdfast.engines.kubernetes.names import TAINT
from holdfast.engines.kubernetes.nodes import Nodes
from holdfast.engines.kubernetes.remaking import Owner, order
from holdfast.model.kubernetes import (
    AnyClusterAct,
    DeletePod,
    Evict,
    RemakePods,
    RestoreNode,
    TaintNode,
    TakeOutOfService,
)

WAITING_MAX = 4096
TRIES_REFUSED_MAX = 5  # of an answer that may pass, such as 429 or 500, to one request
AGAIN_S, AGAIN_S_MAX = 0.2, 5.0
GONE = (404, 409)  # the pod is gone, or its name is another pod's


class Done(NamedTuple):
    """The result of a request to the API server.

    `why`: why the request failed and will not be repeated; empty if it succeeded or nothing was left to do.
    """

    act: AnyClusterAct
    why: str = ""
    is_forbidden: bool = False


class Writing:
    """The thread that makes the engine's requests in order. `hear`: called from this thread with each result.

    `writes`: number of requests made that change something.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        hear: Callable[[Done], None],
        owner: Owner | None = None,
    ) -> None:
        self._connection, self._hear, self._owner = connection, hear, owner
        self._nodes = Nodes(connection)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._acts: queue.Queue[AnyClusterAct] = queue.Queue(WAITING_MAX)
        self._over = threading.Event()
        self.writes = 0
        self._may_evict = True
        self._thread = threading.Thread(target=self._run, name="holdfast-cluster-writes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, act: AnyClusterAct) -> None:
        """Queues a request. Never blocks: if thousands are waiting, it is dropped and reported."""
        try:
            self._acts.put_nowait(act)
        except queue.Full:
            self._hear(Done(act, "too many requests to the API server are pending"))

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                act = self._acts.get(timeout=0.5)
            except queue.Empty:
                continue
            self._until_answered(act)

    def _until_answered(self, act: AnyClusterAct) -> None:
        wait_s, refused = AGAIN_S, 0
        while not self._over.is_set():
            try:
                self.writes += 1
                self._make(act)
                self._hear(Done(act))
                return
            except ServerAway:
                pass
            except RequestFailed as error:
                if self._is_gone(act, error):
                    self._hear(Done(act))
                    return
                refused += 1
                if not (error.may_pass or error.code == 409) or refused >= TRIES_REFUSED_MAX:
                    self._hear(Done(act, str(error), error.is_forbidden))
                    return
                wait_s = max(wait_s, error.again_s or 0.0)
            self._over.wait(wait_s * random.uniform(0.7, 1.3))
            wait_s = min(AGAIN_S_MAX, 2 * wait_s)

    def _is_gone(self, act: AnyClusterAct, error: RequestFailed) -> bool:
        """Returns True if the pod of this uid no longer exists: 404, or 409 if its name belongs to another
        pod.
        """
        if error.code not in GONE or not isinstance(act, Evict | DeletePod):
            return False
        if error.code == 404:
            return True
        try:
            found = self._connection.request("GET", f"{self._pods}/{act.pod}").json()
        except RequestFailed as failed:
            return failed.code == 404
        except ServerAway:
            return False
        return bool(found["metadata"]["uid"] != act.uid)

    def _make(self, act: AnyClusterAct) -> None:
        """Makes a request. Raises ServerAway and RequestFailed."""
        match act:
            case Evict():
                self._evict(act)
            case DeletePod():
                self._delete(act.pod, act.uid, None)
            case TaintNode(node=node):
                self._nodes.taint(node, TAINT, "true", "NoSchedule")
            case TakeOutOfService(node=node):
                self._nodes.take_out_of_service(node)
            case RestoreNode(node=node):
                self._nodes.restore(node)
            case RemakePods(way=way, attempt=attempt):
                assert self._owner is not None, "the owner is known where pods are remade"
                order(self._connection, self._owner, way, attempt)
            case _:
                raise TypeError(f"{act} is no write")

    def _evict(self, act: Evict) -> None:
        """Evicts a pod through the eviction API, which marks it as disrupted: a Job can ignore that end
        and replaces it at once.
        """
        if not self._may_evict:
            self._delete(act.pod, act.uid, act.grace_s)
            return
        options = {"preconditions": {"uid": act.uid}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": act.pod},
            "deleteOptions": options
            if act.grace_s is None
            else {**options, "gracePeriodSeconds": act.grace_s},
        }
        try:
            self._connection.request("POST", f"{self._pods}/{act.pod}/eviction", body)
        except RequestFailed as error:
            # A disruption budget must not keep a pod whose node is dead.
            by_force = act.grace_s == 0 and error.code == 429
            if not (error.is_forbidden or error.code == 405 or by_force):
                raise
            self._may_evict = by_force
            self.writes += 1
            self._delete(act.pod, act.uid, act.grace_s)

    def _delete(self, pod: str, uid: str, grace_s: int | None) -> None:
        body: dict[str, object] = {"preconditions": {"uid": uid}}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        self._connection.request("DELETE", f"{self._pods}/{pod}", body)

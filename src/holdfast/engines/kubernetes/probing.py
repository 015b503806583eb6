"""Tests whether kubelets respond, in threads, by requesting a byte of a pod's log.

The API server fetches it from the node, so only a running kubelet can respond.
"""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from holdfast.core.kubernetes.knocks import Answer
from holdfast.engines.kubernetes.connection import Connection, RequestFailed, ServerAway

AT_ONCE = 8
KUBELET_S, SERVER_S, KNOCK_S = 4.0, 2.0, 1.5
NOT_FOUND = 404
BY_KUBELET = (500, 502, 503, 504)  # of the server about a kubelet that does not answer


class Probed(NamedTuple):
    """The result of testing a kubelet. `answered`: True: it responded; False: it did not, although the API server
    did; None: nothing is proven. `is_gone`: the pod does not exist.
    """

    pod: str
    uid: str
    answered: bool | None
    is_forbidden: bool = False
    is_gone: bool = False


class Knocked(NamedTuple):
    """Result of a connection to an agent's port."""

    pod: str
    uid: str
    answer: Answer


class Probing:
    """Threads that test whether kubelets respond."""

    def __init__(
        self, connection: Connection, namespace: str, hear: Callable[[Probed | Knocked], None]
    ) -> None:
        self._connection, self._hear = connection, hear
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="holdfast-probe")
        self._knockers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="holdfast-knock")
        self._open: set[str] = set()

    def probe(self, pod: str, uid: str, container: str) -> None:
        """Starts a test of the kubelet of a pod, unless one for this pod is running."""
        if pod not in self._open:
            self._open.add(pod)
            self._threads.submit(self._run, pod, uid, container)

    def knock(self, pod: str, uid: str, address: str, port: int) -> None:
        self._knockers.submit(lambda: self._hear(Knocked(pod, uid, _knocked(address, port))))

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._knockers.shutdown(wait=False, cancel_futures=True)

    def _run(self, pod: str, uid: str, container: str) -> None:
        try:
            found = self._look(Probed(pod, uid, None), container)
        finally:
            self._open.discard(pod)
        self._hear(found)

    def _look(self, one: Probed, container: str) -> Probed:
        params = {"tailLines": "1", "limitBytes": "1", "container": container}
        try:
            self._connection.request("GET", f"{self._pods}/{one.pod}/log", params=params, within_s=KUBELET_S)
        except RequestFailed as error:
            if error.is_forbidden:
                return one._replace(is_forbidden=True)
            if error.code not in (*BY_KUBELET, NOT_FOUND):
                return one
        except ServerAway:
            pass  # either of the two: the next request shows which
        else:
            return one._replace(answered=True)
        try:
            found = self._connection.request("GET", f"{self._pods}/{one.pod}", within_s=SERVER_S).json()
        except RequestFailed as error:
            return one._replace(is_gone=error.code == NOT_FOUND)
        except ServerAway:
            return one
        return one._replace(answered=False if found["metadata"]["uid"] == one.uid else None)


def _knocked(address: str, port: int) -> Answer:
    """Connects to an agent's port and returns the result.

    Only a refused connection says something about the process; other failures may be those of the network.
    """
    try:
        socket.create_connection((address, port), timeout=KNOCK_S).close()
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "none"
    return "accepted"

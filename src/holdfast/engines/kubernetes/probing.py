"""Asks kubelets for a byte of a pod's log, in threads: the API server fetches it from the node, so only a living one answers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from holdfast.engines.kubernetes.connection import Connection, RequestFailed, ServerAway

AT_ONCE = 8
KUBELET_S, SERVER_S = 4.0, 2.0
BY_KUBELET = (500, 502, 503, 504)  # of the server about a kubelet that does not answer


class Probed(NamedTuple):
    """`answered`: False: the kubelet is silent while the server answers; None: nothing is proven."""

    pod: str
    uid: str
    answered: bool | None
    is_forbidden: bool = False


class Probing:
    def __init__(self, connection: Connection, namespace: str, hear: Callable[[Probed], None]) -> None:
        self._connection, self._hear = connection, hear
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="holdfast-probe")
        self._open: set[str] = set()

    def probe(self, pod: str, uid: str, container: str) -> None:
        """One at a time for a pod."""
        if pod not in self._open:
            self._open.add(pod)
            self._threads.submit(self._run, pod, uid, container)

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, pod: str, uid: str, container: str) -> None:
        try:
            answered, forbidden = self._look(pod, uid, container)
        finally:
            self._open.discard(pod)
        self._hear(Probed(pod, uid, answered, forbidden))

    def _look(self, pod: str, uid: str, container: str) -> tuple[bool | None, bool]:
        params = {"tailLines": "1", "limitBytes": "1", "container": container}
        try:
            self._connection.request("GET", f"{self._pods}/{pod}/log", params=params, within_s=KUBELET_S)
        except RequestFailed as error:
            if error.is_forbidden:
                return None, True
            if error.code not in BY_KUBELET:
                return None, False
        except ServerAway:
            pass  # either of the two: the next request shows which
        else:
            return True, False
        try:
            found = self._connection.request("GET", f"{self._pods}/{pod}", within_s=SERVER_S).json()
        except (RequestFailed, ServerAway):
            return None, False
        return (False if found["metadata"]["uid"] == uid else None), False

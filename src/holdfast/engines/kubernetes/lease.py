"""Holds the Lease of a job in a thread, so that no two controllers decide for it.

The Lease is taken at the start, once the previous holder's pod has ended or its time has passed, and renewed while this process
lives. An unreachable API server does not matter: the Lease is lost only if another controller holds it.

source: https://kubernetes.io/docs/concepts/architecture/leases/; durations are measured here, not compared
with the server's clock
"""

import threading
import time
from datetime import UTC, datetime
from typing import Any

from holdfast.engines.kubernetes.connection import Connection, RequestFailed, ServerAway
from holdfast.parsers.kubernetes.objects import NotRead, pod_of

DURATION_S, RENEW_S, LOOK_S = 15, 5.0, 1.0


class LeaseTaken(Exception):
    """Raised when another controller of the job is running. The message names it."""


class Lease:
    """The Lease of a job. `holder`: identifies this process, by the uid of its pod and its start time."""

    def __init__(self, connection: Connection, namespace: str, name: str, holder: str) -> None:
        self._connection, self._holder = connection, holder
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path, self._name = f"{self._all}/{name}", name
        self.lost_to = ""
        self.is_forbidden = False
        self._is_first = False
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-lease", daemon=True)

    def take(self, within_s: float) -> bool:
        """Waits until the Lease is free and takes it. Returns False if another pod had it before.

        Raises LeaseTaken, ServerAway and RequestFailed.
        """
        until_s = time.monotonic() + within_s
        seen, since_s = "", time.monotonic()
        while True:
            other, stamp, duration_s = self._try()
            if not other:
                break
            if stamp != seen:
                seen, since_s = stamp, time.monotonic()
            if self._has_ended(other) or time.monotonic() - since_s > duration_s:
                if self._force(stamp):
                    break
            if time.monotonic() > until_s:
                raise LeaseTaken(
                    f"{other} is the controller of this job: it renews the Lease {self._name}. Delete that pod if it should not "
                    "run, or give one of the two jobs another name"
                )
            self._over.wait(LOOK_S)
        self._thread.start()
        return self._is_first

    def stop(self) -> None:
        """Stops renewing the Lease but does not release it: another controller process of this pod takes it over."""
        self._over.set()

    def release(self) -> None:
        self._over.set()
        if self._thread.is_alive() and not self.lost_to:
            try:
                body = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
                self._connection.request(
                    "PATCH", self._path, body, kind="application/merge-patch+json", within_s=2.0
                )
            except (RequestFailed, ServerAway):
                return  # it ends by itself

    def _try(self) -> tuple[str, str, float]:
        """Tries to take the Lease.

        Returns ("", "", 0) on success, otherwise holder, renewal time and duration in seconds.
        """
        try:
            found = self._connection.request("GET", self._path).json()
        except RequestFailed as error:
            if error.code != 404:
                raise
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": self._spec(),
            }
            self._connection.request("POST", self._all, body)
            self._is_first = True
            return "", "", 0.0
        spec: dict[str, Any] = found.get("spec") or {}
        other = str(spec.get("holderIdentity") or "")
        self._is_first = self._is_first or not spec.get("renewTime")
        if other in ("", self._holder) or _pod_of(other) == _pod_of(self._holder):
            self._put(found)
            return "", "", 0.0
        return other, str(spec.get("renewTime")), float(spec.get("leaseDurationSeconds") or DURATION_S)

    def _has_ended(self, holder: str) -> bool:
        """Returns True if the holder's pod no longer exists or has ended; False if that is unknown.

        A holder that runs in a pod removed by force reads in the Lease that it was replaced, within `RENEW_S`.
        """
        name, _, uid = _pod_of(holder).rpartition(".")
        try:
            pod = pod_of(self._connection.request("GET", f"{self._pods}/{name}").content)
        except RequestFailed as error:
            return error.code == 404 and bool(uid)
        except (ServerAway, NotRead):
            return False
        return pod.uid != uid or pod.phase in ("Succeeded", "Failed")

    def _force(self, stamp: str) -> bool:
        """Takes a Lease that was not renewed in time. Returns False if it was renewed just now."""
        found = self._connection.request("GET", self._path).json()
        if str((found.get("spec") or {}).get("renewTime")) != stamp:
            return False
        self._put(found)
        return True

    def _put(self, found: dict[str, Any]) -> None:
        self._connection.request(
            "PUT", self._path, {**found, "spec": {**(found.get("spec") or {}), **self._spec()}}
        )

    def _spec(self) -> dict[str, Any]:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": self._holder, "leaseDurationSeconds": DURATION_S, "renewTime": at}

    def _run(self) -> None:
        while not self._over.wait(RENEW_S):
            try:
                found = self._connection.request("GET", self._path).json()
                other = str((found.get("spec") or {}).get("holderIdentity") or "")
                if other not in ("", self._holder):
                    self.lost_to = other
                    return
                self._put(found)
            except RequestFailed as error:
                self.is_forbidden = error.is_forbidden
            except ServerAway:
                continue


def _pod_of(holder: str) -> str:
    """Returns the pod of a holder; a controller restarted in its pod replaces the former process."""
    return holder.rpartition("/")[0]

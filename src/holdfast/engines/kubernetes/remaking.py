"""Deletes and recreates all pods of a job, for each kind of owner.

First the engine suspends the owner with the annotation `REMAKE` (Volcano: it orders RestartJob; under Kueue,
which would resume the owner at once, it evicts all pods). Then the controller ends its attempt, waits here
until no pod of the job is running, and resumes the owner. The annotation shows that Holdfast suspended the
owner, also to a controller that has lost its journal.

source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#suspending-a-job and
#mutable-scheduling-directives; https://volcano.sh/en/docs/v1-12-0/ (Command);
https://kueue.sigs.k8s.io/docs/concepts/workload/
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.engines.kubernetes.connection import MERGE_PATCH, Connection, RequestFailed, ServerAway
from holdfast.engines.kubernetes.kinds import OwnerKind
from holdfast.engines.kubernetes.names import REMAKE, ROLE_WORKER, selector
from holdfast.model.kubernetes import OwnerState, PodState, RemakeWay
from holdfast.parsers.kubernetes.objects import NotRead, owner_of, page, pod_of

LOOK_S, AWAY_S = 0.3, 2.0
SUSPENDED_S = 5.0  # for the owner's controller to say that it has suspended it
FORCE_S = 10.0  # beyond the grace of its pods: then they are removed by force
KUEUE = "kueue.x-k8s.io/queue-name"
HOST = "kubernetes.io/hostname"


class Owner(NamedTuple):
    """The object that owns the job's pods, as far as its recreation of pods needs it."""

    job: str
    namespace: str
    kind: OwnerKind
    name: str

    @property
    def path(self) -> str:
        return self.kind.path(self.namespace, self.name)


def way_of(kind: OwnerKind, owner: OwnerState | None) -> RemakeWay:
    if owner is not None and KUEUE in owner.labels:
        return "evict"
    return "suspend" if kind.suspends else "restart-job"


def order(connection: Connection, owner: Owner, way: RemakeWay, attempt: int) -> None:
    """Sends the request that starts the recreation of the pods. Idempotent.

    Raises ServerAway, RequestFailed.
    """
    if way == "suspend":
        patch = {"metadata": {"annotations": {REMAKE: str(attempt)}}, "spec": {"suspend": True}}
        connection.request("PATCH", owner.path, patch, kind=MERGE_PATCH)
        return
    found = connection.request("GET", owner.path).json()
    target = {
        "apiVersion": owner.kind.api_version,
        "kind": owner.kind.kind,
        "name": owner.name,
        "uid": found["metadata"]["uid"],
        "controller": True,
    }
    command = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": f"{owner.name}-remake-{attempt}", "ownerReferences": [target]},
        "action": "RestartJob",
        "target": target,
    }
    try:
        connection.request(
            "POST", f"/apis/bus.volcano.sh/v1alpha1/namespaces/{owner.namespace}/commands", command
        )
    except RequestFailed as error:
        if error.code != 409:  # it is there already
            raise


class Between:
    """Work between two attempts: waits while the job's owner is suspended, and resumes it if Holdfast
    suspended it.

    `isolated`: nodes of the cluster that new pods must avoid. `tell`: prints one line.
    """

    def __init__(
        self, connection: Connection, owner: Owner, isolated: Sequence[str], tell: Callable[[str], None]
    ) -> None:
        self._connection, self._owner, self._isolated, self._tell = connection, owner, isolated, tell
        self._said = ""

    def wait(self) -> None:
        """Returns once the owner is not suspended, or no longer exists.

        Waits for an API server that is unreachable.
        """
        while True:
            try:
                if self._is_ready():
                    return
                time.sleep(LOOK_S if self._said == "" else 3 * LOOK_S)
            except (ServerAway, RequestFailed, NotRead) as error:
                self._say(f"waits for the API server: {error}")
                time.sleep(AWAY_S)

    def _is_ready(self) -> bool:
        try:
            raw = self._connection.request("GET", self._owner.path).content
        except RequestFailed as error:
            if error.code == 404:
                return True
            raise
        owner = owner_of(raw)
        if owner.deleting or owner.over or not owner.suspended:
            return True
        if REMAKE in owner.annotations:
            self._end_ours()
            return True
        self._say(f"{owner.kind} {owner.name} is suspended: the job continues when it is resumed")
        return False

    def _end_ours(self) -> None:
        """Resumes the owner if Holdfast suspended it. Raises ServerAway, RequestFailed, NotRead."""
        begun_s = time.monotonic()
        forced: set[str] = set()
        while True:
            alive = [pod for pod in self._pods() if not pod.is_over]
            waited_s = time.monotonic() - begun_s
            if not alive and (waited_s > SUSPENDED_S or self._is_suspended()):
                break
            if waited_s > FORCE_S + max((pod.grace_s for pod in alive), default=0):
                self._force([pod for pod in alive if pod.uid not in forced])
                forced |= {pod.uid for pod in alive}
            time.sleep(LOOK_S)
        if self._isolated and self._owner.kind.kind == "Job" and self._owner.kind.suspends:
            self._keep_off()
        patch = {"metadata": {"annotations": {REMAKE: None}}, "spec": {"suspend": False}}
        self._connection.request("PATCH", self._owner.path, patch, kind=MERGE_PATCH)

    def _is_suspended(self) -> bool:
        return owner_of(self._connection.request("GET", self._owner.path).content).is_suspended

    def _pods(self) -> list[PodState]:
        path = f"/api/v1/namespaces/{self._owner.namespace}/pods"
        params = {"labelSelector": selector(self._owner.job, ROLE_WORKER)}
        found = page(self._connection.request("GET", path, params=params).content)
        return [pod_of(bytes(raw)) for raw in found.items or ()]

    def _force(self, pods: Sequence[PodState]) -> None:
        """Deletes pods by force whose nodes do not respond, after their termination grace period."""
        for pod in pods:
            self._tell(f"pod {pod.name} does not end within its grace: it is removed by force")
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
            try:
                self._connection.request(
                    "DELETE", f"/api/v1/namespaces/{self._owner.namespace}/pods/{pod.name}", body
                )
            except RequestFailed as error:
                if error.code not in (404, 409):
                    self._tell(f"pod {pod.name} cannot be removed: {error}")

    def _keep_off(self) -> None:
        """Adds a node affinity to the owner's template that excludes isolated nodes.

        A suspended Job permits this, so no permission on nodes is needed.
        """
        job = self._connection.request("GET", self._owner.path).json()
        affinity = kept_off(job["spec"]["template"]["spec"].get("affinity"), self._isolated)
        patch = {"spec": {"template": {"spec": {"affinity": affinity}}}}
        try:
            self._connection.request("PATCH", self._owner.path, patch, kind=MERGE_PATCH)
        except RequestFailed as error:
            self._tell(f"pods cannot be kept off {', '.join(self._isolated)} by the Job's template: {error}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._tell(text)


def kept_off(affinity: dict[str, Any] | None, nodes: Sequence[str]) -> dict[str, Any]:
    """Returns a node affinity with one more requirement in each of its terms: none of these nodes.

    Nodes that are already excluded stay excluded.
    """
    whole = dict(affinity or {})
    of_node = dict(whole.get("nodeAffinity") or {})
    required = of_node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[dict[str, Any]] = []
    given: list[dict[str, Any]] = required.get("nodeSelectorTerms") or [{}]
    for term in given:
        rest, names = [], set(nodes)
        for one in term.get("matchExpressions") or ():
            if (one.get("key"), one.get("operator")) == (HOST, "NotIn"):
                names |= set(one.get("values") or ())
            else:
                rest.append(one)
        ours = {"key": HOST, "operator": "NotIn", "values": sorted(names)}
        terms.append({**term, "matchExpressions": [*rest, ours]})
    of_node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    return {**whole, "nodeAffinity": of_node}

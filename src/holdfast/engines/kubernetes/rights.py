"""Queries the API server for the access rights of this process, before they are needed.

source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.engines.kubernetes.connection import Connection


class Right(NamedTuple):
    """An access right. `namespaced`: whether it is for the namespace of the job or for the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespaced: bool = True


WATCH_PODS = (Right("list", "pods"), Right("watch", "pods"))
REMOVE_PODS = Right("delete", "pods")
EVICT_PODS = Right("create", "pods", subresource="eviction")
READ_LOGS = Right("get", "pods", subresource="log")
NODES = tuple(Right(verb, "nodes", namespaced=False) for verb in ("get", "list", "watch", "patch"))
DEVICES = "resource.k8s.io"
WATCH_SLICES = tuple(Right(verb, "resourceslices", DEVICES, namespaced=False) for verb in ("list", "watch"))
WATCH_CLAIMS = tuple(Right(verb, "resourceclaims", DEVICES) for verb in ("list", "watch"))
LEASES = Right("update", "leases", "coordination.k8s.io")


def allowed(connection: Connection, namespace: str, rights: Sequence[Right]) -> dict[Right, bool]:
    """Returns whether each right is granted. Raises ServerAway and RequestFailed."""
    return {right: _is_allowed(connection, namespace, right) for right in rights}


def _is_allowed(connection: Connection, namespace: str, right: Right) -> bool:
    attributes = {"verb": right.verb, "resource": right.resource, "group": right.group}
    if right.namespaced:
        attributes["namespace"] = namespace
    if right.subresource:
        attributes["subresource"] = right.subresource
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = connection.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body).json()
    return bool((answer.get("status") or {}).get("allowed"))

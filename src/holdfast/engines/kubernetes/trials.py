"""Asks a Kubernetes cluster what the caller may do there, and tries what its server takes. Changes nothing.

`holdfast run` asks before it submits a job: this module imports nothing that only `holdfast k8s doctor` needs.
source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access,
https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
"""

from holdfast.core.kubernetes import needs
from holdfast.core.kubernetes.cluster_report import Need
from holdfast.engines.kubernetes.connection import Connection, RequestFailed
from holdfast.engines.kubernetes.kinds import OWNERS
from holdfast.engines.kubernetes.manifests import Document, restart_rules
from holdfast.engines.kubernetes.rights import Right, allowed

_PROBE = "holdfast-doctor"


def missing_rights(connection: Connection, kind: str) -> tuple[str, ...]:
    """Returns which rights the caller lacks to submit a job, such as "create secrets"; empty if that cannot be queried.

    Raises ServerAway.
    """
    owner = OWNERS[kind]
    listed = tuple(
        one for one in needs.needs(owner.group, owner.plural) if one.required and one.who == needs.YOU
    )
    try:
        rights = needs.judged(listed, permitted(connection, listed))
    except RequestFailed:
        return ()
    found = [f"{', '.join(one.missing)} {one.need.resource}" for one in rights if one.missing]
    return tuple(dict.fromkeys(found))


def permitted(connection: Connection, listed: tuple[Need, ...]) -> dict[tuple[Need, str], bool]:
    """Returns for each need and verb whether it is permitted. Raises ServerAway, RequestFailed."""
    asked = {(need, verb): _right(need, verb) for need in listed for verb in need.verbs}
    found = allowed(connection, connection.namespace, tuple(dict.fromkeys(asked.values())))
    return {key: found[right] for key, right in asked.items()}


def _right(need: Need, verb: str) -> Right:
    resource, _, subresource = need.resource.partition("/")
    return Right(verb, resource, need.group, subresource, need.namespaced)


def restarts_containers(connection: Connection) -> bool:
    """Returns whether the server takes RestartAllContainers; False if it cannot be tried. Raises ServerAway."""
    return bool(_tried(connection, *_PROBES[needs.RESTART_ALL]))


def taken(connection: Connection) -> dict[str, bool]:
    """Returns for each feature that shows in the fields of a pod whether the server keeps them; without those that
    cannot be tried. Raises ServerAway.
    """
    tried = {feature: _tried(connection, *fields) for feature, fields in _PROBES.items()}
    return {feature: has for feature, has in tried.items() if has is not None}


def _tried(connection: Connection, container: Document, volumes: list[Document]) -> bool | None:
    """Returns whether the server keeps these fields of a pod in a dry run; None if that is not permitted."""
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", **container}],
        "volumes": volumes,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": _PROBE}, "spec": spec}
    path = f"/api/v1/namespaces/{connection.namespace}/pods"
    try:
        made = connection.request("POST", path, pod, params={"dryRun": "All"}).json()["spec"]
    except RequestFailed as error:
        return False if error.code == 422 else None  # 422: the server does not take the value of the field
    return bool(
        made["containers"][0].get("restartPolicyRules")
        or any("image" in one for one in made.get("volumes", ()))
    )


_PROBES: dict[str, tuple[Document, list[Document]]] = {
    needs.RESTART_ALL: (restart_rules(), []),
    needs.IMAGE_VOLUMES: (
        {"volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}]},
        [{"name": "v", "image": {"reference": "i"}}],
    ),
}

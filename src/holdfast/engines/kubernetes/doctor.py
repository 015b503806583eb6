"""Queries which features a Kubernetes cluster has and what the caller may do there. Changes nothing.

source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access,
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#self-subject-review,
https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
"""

from collections.abc import Mapping
from typing import Any

from holdfast.core.kubernetes import needs
from holdfast.core.kubernetes.cluster_report import ClusterReport
from holdfast.engines.kubernetes.connection import Connection, NoCluster, RequestFailed, ServerAway, connect
from holdfast.engines.kubernetes.kinds import OWNERS
from holdfast.engines.kubernetes.trials import permitted, taken
from holdfast.engines.kubernetes.wrap.texts import fresh


class NoReport(Exception):
    """Raised when the cluster cannot be queried. The message says why, and what to do."""


def examined(env: Mapping[str, str], context: str, namespace: str, kind: str) -> ClusterReport:
    """Returns the features and permissions in the cluster. `kind`: key of OWNERS. Raises NoReport."""
    try:
        connection = connect(env, context, namespace)
    except NoCluster as error:
        raise NoReport(str(error)) from error
    try:
        return _report(connection, kind)
    except ServerAway as error:
        raise NoReport(f"{error}. Check the server of the kubeconfig, and the network to it") from error
    except RequestFailed as error:
        raise NoReport(_refused(error)) from error
    finally:
        connection.close()


def _refused(error: RequestFailed) -> str:
    if error.code == 401:
        return "the API server does not accept these credentials (401): log in again, or choose another --context"
    if error.code == 403:
        return (
            "these credentials have no permission to query their own rights (403): the cluster's role system:basic-user is not "
            "bound to them; ask for it, or choose another --context"
        )
    return f"the API server rejected the query of rights: {error}"


def _report(connection: Connection, kind: str) -> ClusterReport:
    """Queries the cluster and returns the report. Raises ServerAway, RequestFailed."""
    owner = OWNERS[kind]
    listed = needs.needs(owner.group, owner.plural)
    rights = needs.judged(listed, permitted(connection, listed))
    found = _read(connection, "/version") or {}
    version = str(found.get("gitVersion", ""))
    user = _user(connection)
    granted = needs.roles(rights, connection.namespace, user)
    return ClusterReport(
        server=str(connection.client.base_url).rstrip("/"),
        version=version,
        namespace=connection.namespace,
        kind=kind,
        user=user,
        too_old=bool(version) and needs.version_of(version) < needs.VERSION_LEAST,
        features=needs.features(version, _groups(connection), _probed(connection)),
        rights=rights,
        grants={place: "".join(map(fresh, documents)) for place, documents in granted.items()},
    )


def _read(connection: Connection, path: str) -> Any:
    """Returns the answer to a GET request; None if reading is not permitted."""
    try:
        return connection.request("GET", path).json()
    except (RequestFailed, ValueError):
        return None


def _groups(connection: Connection) -> set[str] | None:
    found = _read(connection, "/apis")
    return None if found is None else {str(one.get("name")) for one in found.get("groups", ())}


def _user(connection: Connection) -> str:
    """Returns the user name by which the API server identifies the caller; "" if it does not say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = connection.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body).json()
    except RequestFailed:
        return ""
    return str(((found.get("status") or {}).get("userInfo") or {}).get("username", ""))


def _probed(connection: Connection) -> dict[str, bool]:
    """Features that show in what the server makes of a pod in a dry run: fields of features that are off are dropped."""
    found: dict[str, bool] = {}
    policies = _read(connection, "/apis/admissionregistration.k8s.io/v1")
    if policies is not None:
        names = {one.get("name") for one in policies.get("resources", ())}
        found[needs.POLICIES] = "mutatingadmissionpolicies" in names
    return found | taken(connection)

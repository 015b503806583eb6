"""Lists the permissions and features that jobs on Kubernetes use, and what does not work without each. Pure.

source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/ (rules; privilege escalation: who
creates a Role needs its permissions),
https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/ (versions)
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from holdfast.core.kubernetes.cluster_report import Feature, Judged, Need

RBAC_GROUP = "rbac.authorization.k8s.io"
VERSION_LEAST = (1, 33)  # successPolicy and backoffLimitPerIndex of Jobs
_READ = "get list watch"
YOU, CONTROLLER = "you", "controller"
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


class Known(NamedTuple):
    """A feature of the server: since which version it is on by default, and what happens without it."""

    name: str
    since: tuple[int, int]
    without: str


RESTART_ALL, IMAGE_VOLUMES, POLICIES = "RestartAllContainers", "image volumes", "MutatingAdmissionPolicy"
FEATURES = (
    Known(RESTART_ALL, (1, 36), "a pod with a failed sidecar is evicted, and another pod takes its place"),
    Known(
        IMAGE_VOLUMES,
        (1, 36),
        "the agent's folder is copied by an init container, as holdfast k8s wrap does by default",
    ),
    Known(POLICIES, (1, 36), "one annotation cannot wrap a job at its creation: use holdfast k8s wrap"),
)
# By API group: what people call it, and what happens without it.
GROUPS = {
    "jobset.x-k8s.io": ("JobSet", "--kind jobset is not possible; --kind job needs nothing installed"),
    "trainer.kubeflow.org": ("Kubeflow Trainer v2", "--kind trainjob is not possible"),
    "batch.volcano.sh": ("Volcano", "--kind volcano is not possible"),
    "kubeflow.org": ("Kubeflow training operator v1", "PyTorchJobs cannot be wrapped"),
    "kueue.x-k8s.io": ("Kueue", "jobs are not queued by quota"),
    "resource.k8s.io": ("dynamic resource allocation", "health of devices is read from pods only"),
}


class _Row(NamedTuple):
    """A row of the table of needs.

    `resource`: as kubectl names it: "leases.coordination.k8s.io" is a resource and its API group. `verbs`:
    separated by spaces. `lost`: what does not work without it; empty: no job runs without it.
    """

    resource: str
    verbs: str
    purpose: str
    lost: str = ""
    instead: str = ""


_OWNER = "OWNER"  # stands for the kind that owns the job's pods
_CLUSTER_WIDE = ("nodes", "resourceslices")
_YOURS = (
    _Row(_OWNER, "create get patch delete", "the job"),
    _Row(
        "secrets",
        "create",
        "the job's secret",
        instead="holdfast k8s wrap --secret NAME uses an existing one",
    ),
    _Row("services", "create", "the controller's address"),
    _Row("serviceaccounts", "create", "the controller's account"),
    _Row("roles.rbac.authorization.k8s.io", "create", "the controller's rights"),
    _Row("rolebindings.rbac.authorization.k8s.io", "create", "the controller's rights"),
    _Row("jobs.batch", "create", "the controller"),
    _Row(
        "pods/log",
        "get",
        "the output of a job that you follow",
        lost="holdfast run and attach print no output of the training",
        instead="read it where your cluster collects logs",
    ),
    _Row(
        "pods/exec",
        "get create",
        "holdfast status, log, stacks, exec and shell from outside",
        lost="these commands do not reach the job",
        instead="holdfast attach prints the job's own lines",
    ),
)
_CONTROLLERS = (
    _Row("pods", _READ, "to see pods"),
    _Row(
        _OWNER,
        _READ,
        "to see that the job is suspended or deleted",
        lost="the training does not end in order when the job is suspended or deleted",
        instead="the training ends when its pods are removed",
    ),
    _Row(
        _OWNER,
        "patch",
        "to recreate all pods (--reschedule-pods)",
        lost="a whole job is restarted in its existing pods",
    ),
    _Row(
        "pods",
        "delete",
        "to replace a pod on a dead node",
        lost="a pod on a dead node is replaced by its owner only, after minutes or never",
        instead="spares replace the worker in any case",
    ),
    _Row(
        "pods/eviction",
        "create",
        "to replace a pod without counting as a failure of its Job",
        lost="a replaced pod counts as a failure of the Job",
        instead="pods are deleted",
    ),
    _Row(
        "pods/log",
        "get",
        "a second proof that a pod is dead",
        lost="a frozen node is proven only by the state of nodes",
        instead="the worker moves to a spare in any case; its old pod stays",
    ),
    _Row(
        "events",
        _READ,
        "reasons why pods do not start",
        lost="quotas, mounts and images that keep a pod from starting are not named",
        instead="kubectl describe pod",
    ),
    _Row(
        "leases.coordination.k8s.io",
        "get create update patch",
        "one controller for a job",
        lost="a second controller of the same job is not noticed",
    ),
)
_DEVICES = (
    "taints of devices are not seen",
    "health of devices is read from pods",
)
_VOLCANO = _Row(
    "commands.bus.volcano.sh",
    "create",
    "to have Volcano recreate all pods (--reschedule-pods)",
    lost="a whole job is restarted in its existing pods",
)
_DEVICES_AND_NODES = (
    _Row(
        "resourceclaims.resource.k8s.io",
        _READ,
        "the devices of each pod (dynamic resource allocation)",
        *_DEVICES,
    ),
    _Row(
        "nodes",
        f"{_READ} patch",
        "states of nodes, and taints for those that are dead or have a machine fault",
        lost="other jobs' pods still land on a node that Holdfast has isolated",
        instead="no worker of this job is placed there, and its pods that land there are evicted, 5 times at most",
    ),
    _Row(
        "resourceslices.resource.k8s.io",
        _READ,
        "taints of devices (dynamic resource allocation)",
        *_DEVICES,
    ),
)


def needs(group: str, plural: str) -> tuple[Need, ...]:
    """Returns all permissions that a job needs if its pods' owner has this API group and plural name."""
    owner = f"{plural}.{group}"
    volcano = [_VOLCANO] if group == "batch.volcano.sh" else []
    controllers = (*_CONTROLLERS, *volcano, *_DEVICES_AND_NODES)
    return tuple(
        [_need(YOU, row, owner) for row in _YOURS] + [_need(CONTROLLER, row, owner) for row in controllers]
    )


def _need(who: str, row: _Row, owner: str) -> Need:
    """Returns the need of a row. `owner`: what `_OWNER` stands for."""
    resource, _, group = (owner if row.resource == _OWNER else row.resource).partition(".")
    return Need(
        who=who,
        resource=resource,
        group=group,
        verbs=tuple(row.verbs.split()),
        purpose=row.purpose,
        required=not row.lost,
        namespaced=resource not in _CLUSTER_WIDE,
        lost=row.lost,
        instead=row.instead,
    )


def judged(all_needs: Collection[Need], allowed: Mapping[tuple[Need, str], bool]) -> tuple[Judged, ...]:
    """Returns the permissions that jobs need, each with its verbs that are not allowed. `allowed`: by permission and
    verb.
    """
    return tuple(
        Judged(need=need, missing=tuple(verb for verb in need.verbs if not allowed.get((need, verb), False)))
        for need in all_needs
    )


def version_of(text: str) -> tuple[int, int]:
    """Returns a version as numbers: (1, 36) for "v1.36.2-gke.100"; (0, 0) if the text is no version."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def features(version: str, groups: Collection[str] | None, probed: Mapping[str, bool]) -> tuple[Feature, ...]:
    """Returns the features of a cluster.

    `groups`: API groups; None means unknown. `probed`: results of dry-run requests.
    """
    is_now = version_of(version)
    found = [
        Feature(
            name=one.name,
            present=probed.get(one.name, is_now >= one.since),
            how="a dry run"
            if one.name in probed
            else f"the server's version ({one.since[0]}.{one.since[1]} or later)",
            without=one.without,
        )
        for one in FEATURES
    ]
    found += [
        Feature(
            name=name,
            present=None if groups is None else group in groups,
            how=f"API group {group}",
            without=without,
        )
        for group, (name, without) in GROUPS.items()
    ]
    return tuple(found)


def roles(rights: Collection[Judged], namespace: str, user: str) -> dict[str, list[dict[str, Any]]]:
    """Returns roles and bindings that grant the missing permissions, by "namespace" and "cluster". `user`: who gets
    them.
    """
    found = {}
    for place in ("namespace", "cluster"):
        rules = [
            {"apiGroups": [one.need.group], "resources": [one.need.resource], "verbs": list(one.missing)}
            for one in rights
            if one.missing and one.need.namespaced == (place == "namespace")
        ]
        if rules:
            found[place] = _granted(rules, namespace if place == "namespace" else "", user)
    return found


def _granted(rules: list[dict[str, Any]], namespace: str, user: str) -> list[dict[str, Any]]:
    kind = "Role" if namespace else "ClusterRole"
    meta = {"name": "holdfast-user", **({"namespace": namespace} if namespace else {})}
    api = f"{RBAC_GROUP}/v1"
    return [
        {"apiVersion": api, "kind": kind, "metadata": meta, "rules": rules},
        {
            "apiVersion": api,
            "kind": f"{kind}Binding",
            "metadata": dict(meta),
            "subjects": [_subject(user)],
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": meta["name"]},
        },
    ]


def _subject(user: str) -> dict[str, str]:
    """Returns the RBAC subject of a user name, or of the service account in
    "system:serviceaccount:NAMESPACE:NAME".
    """
    parts = user.split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        return {"kind": "ServiceAccount", "namespace": parts[2], "name": parts[3]}
    return {"kind": "User", "apiGroup": RBAC_GROUP, "name": user or "YOUR-NAME"}

"""Builds the Kubernetes objects of a job: owner of the pods, controller, access rights, secret. Pure.

source: https://kubernetes.io/docs/reference/kubernetes-api/,
    https://kubernetes.io/docs/concepts/workloads/controllers/job/,
    https://kubernetes.io/docs/concepts/security/pod-security-standards/ (restricted)
"""

import base64
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from holdfast.engines.kubernetes import names
from holdfast.engines.kubernetes.kinds import KINDS, OWNERS
from holdfast.model.kubernetes import JOB_FAILED, RENEW

Document = dict[str, Any]
STATE, SECRET = "/holdfast/state", "/holdfast/secret"
SECRET_MODE = 0o444  # its files are root's, and containers run as any user
# Every pod that ends by itself counts as a failure of the Job; Holdfast's own budgets limit restarts.
PODS_LOST_MAX = 10_000
GPU = "nvidia.com/gpu"
GRACE_S = 60  # for the last checkpoint of a pod that is removed
TOLERATED_S = 30  # of a node that is not ready; by then its worker runs elsewhere


class Wanted(Struct, frozen=True, kw_only=True):
    """The parameters of a job's Kubernetes objects. `run`: the words of `holdfast` in the controller's pod. `gpus`:
    number for each pod. `kind`: a key of KINDS.

    `state_claim`: a PersistentVolumeClaim for the job's journal; empty: an emptyDir. `restart_containers`: the server
    has the action RestartAllContainers.
    """

    job: str
    namespace: str
    image: str
    pods: int
    run: tuple[str, ...]
    secret: str
    gpus: int = 0
    gpu_resource: str = GPU
    kind: str = "job"
    env: tuple[tuple[str, str], ...] = ()
    state_claim: str = ""
    restart_containers: bool = False


def labels(job: str, role: str = "") -> dict[str, str]:
    found = {names.LABEL_JOB: job}
    return {**found, names.LABEL_ROLE: role} if role else found


def owned_by(made: Document) -> list[Document]:
    """Returns owner references to `made`: if that object is deleted, Kubernetes deletes all objects that have
    them.
    """
    meta = made["metadata"]
    return [
        {
            "apiVersion": made["apiVersion"],
            "kind": made["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
        }
    ]


def owner(wanted: Wanted) -> Document:
    """Returns the object that creates all pods; suspended until the other objects exist, if its kind
    supports that.
    """
    kind = KINDS[wanted.kind]
    meta = {"name": wanted.job, "namespace": wanted.namespace, "labels": labels(wanted.job)}
    spec = {
        "job": worker_job_spec,
        "jobset": jobset_spec,
        "trainjob": train_job_spec,
        "volcano": volcano_spec,
    }[wanted.kind](wanted)
    suspend = {"suspend": True} if kind.suspends else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": {**spec, **suspend}}


def jobset_spec(wanted: Wanted) -> Document:
    """Returns the spec of a JobSet: one Indexed Job of all pods, whose failure is the JobSet's."""
    template = {"spec": worker_job_spec(wanted)}
    return {"replicatedJobs": [{"name": names.ROLE_WORKER, "replicas": 1, "template": template}]}


def train_job_spec(wanted: Wanted) -> Document:
    """Returns the spec of a TrainJob; everything else is in its runtime, as Trainer v2 requires."""
    reference = {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": names.objects_name(wanted.job),
    }
    return {"runtimeRef": reference, "trainer": {"numNodes": wanted.pods, "image": wanted.image}}


def training_runtime(wanted: Wanted) -> Document:
    """Returns the runtime of one TrainJob: a JobSet's template with the pods."""
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    template = {"metadata": {"labels": step}, "spec": worker_job_spec(wanted)}
    jobs = [{"name": "node", "replicas": 1, "template": template}]
    return {
        **_of(wanted, "trainer.kubeflow.org/v1alpha1", "TrainingRuntime"),
        "spec": {"mlPolicy": {"numNodes": wanted.pods}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


def volcano_spec(wanted: Wanted) -> Document:
    """Returns the spec of a Volcano job: complete once one agent ends with 0, aborted once one ends with
    JOB_FAILED.
    """
    return {
        "schedulerName": "volcano",
        "minAvailable": wanted.pods,
        "minSuccess": 1,
        "maxRetry": PODS_LOST_MAX,  # of RestartJob: Holdfast's own budgets limit it
        "policies": [{"exitCode": JOB_FAILED, "action": "AbortJob"}],
        "tasks": [{"name": names.ROLE_WORKER, "replicas": wanted.pods, "template": worker_template(wanted)}],
    }


def worker_job_spec(wanted: Wanted) -> Document:
    """Returns the spec of an Indexed Job: complete once one agent ends with 0, failed once one ends with
    JOB_FAILED.

    Agents end so when the job has succeeded or failed.
    """
    return {
        "completions": wanted.pods,
        "parallelism": wanted.pods,
        "completionMode": "Indexed",
        # Of each index by itself: else the back-off before another pod (10 s, doubling to 6 min) grew with every pod that the
        # whole job ever lost.
        "backoffLimitPerIndex": PODS_LOST_MAX,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": KINDS[wanted.kind].container,
                        "operator": "In",
                        "values": [JOB_FAILED],
                    },
                },
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "template": worker_template(wanted),
    }


def worker_template(wanted: Wanted) -> Document:
    """Returns the template of the pods: all equal, each on its own node, with the agent as first process."""
    selector = {"matchLabels": labels(wanted.job, names.ROLE_WORKER)}
    resources = {"resources": {"limits": {wanted.gpu_resource: wanted.gpus}}} if wanted.gpus else {}
    container = {
        "name": KINDS[wanted.kind].container,
        "image": wanted.image,
        "command": ["holdfast", "agent"],
        "env": agent_environment(wanted),
        "volumeMounts": [
            {"name": "holdfast-state", "mountPath": STATE},
            {"name": "holdfast-secret", "mountPath": SECRET, "readOnly": True},
        ],
        **resources,
        **(restart_rules() if wanted.restart_containers else {}),
    }
    return {
        "metadata": {"labels": labels(wanted.job, names.ROLE_WORKER)},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED_S}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule" if wanted.gpus else "ScheduleAnyway",
                    "labelSelector": selector,
                }
            ],
            "containers": [container],
            "volumes": _volumes(wanted.job),
        },
    }


def restart_rules() -> Document:
    """Returns the fields of the agent's container by which all containers of its pod restart once it ends with RENEW.

    source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-all-containers
    """
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [RENEW]}}
    return {"restartPolicy": "Never", "restartPolicyRules": [rule]}


def agent_environment(wanted: Wanted) -> list[Document]:
    """Returns the environment by which an agent finds its controller. The node's name is that of the pod."""
    service = f"{names.controller_name(wanted.job)}.{wanted.namespace}.svc"
    return [
        {"name": "HOLDFAST_NODE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "HOLDFAST_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "HOLDFAST_LIFE_PORT", "value": str(names.LIFE_PORT)},
        {"name": "HOLDFAST_STATE_DIR", "value": STATE},
        {"name": "HOLDFAST_JOB_FOLDER", "value": f"{STATE}/jobs/{wanted.job}"},
        {"name": "HOLDFAST_CONTROLLER", "value": f"{service}:{names.PORT}"},
        {"name": "HOLDFAST_SECRET_FILE", "value": f"{SECRET}/secret"},
        *({"name": key, "value": value} for key, value in wanted.env),
    ]


def controller_job(wanted: Wanted) -> Document:
    """Returns the Job of the controller: one pod whose container is restarted in place, so its emptyDir
    keeps the journal.
    """
    container = {
        "name": names.ROLE_CONTROLLER,
        "image": wanted.image,
        "command": ["holdfast", *wanted.run],
        "env": [
            *controller_environment(wanted),
            *({"name": key, "value": value} for key, value in wanted.env),
        ],
        "volumeMounts": [
            {"name": "holdfast-state", "mountPath": STATE},
            {"name": "holdfast-secret", "mountPath": SECRET, "readOnly": True},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.controller_name(wanted.job),
            "namespace": wanted.namespace,
            "labels": labels(wanted.job),
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": PODS_LOST_MAX,
            "template": {
                "metadata": {"labels": labels(wanted.job, names.ROLE_CONTROLLER)},
                "spec": {
                    "restartPolicy": "OnFailure",
                    "serviceAccountName": names.objects_name(wanted.job),
                    "enableServiceLinks": False,
                    "containers": [container],
                    "volumes": _volumes(wanted.job, wanted.state_claim),
                },
            },
        },
    }


def controller_environment(wanted: Wanted) -> list[Document]:
    fields = {
        names.POD_ENV: "metadata.name",
        names.POD_UID_ENV: "metadata.uid",
        names.POD_IP_ENV: "status.podIP",
        names.NAMESPACE_ENV: "metadata.namespace",
    }
    values = {
        names.ROLE_ENV: names.ROLE_CONTROLLER,
        names.JOB_ENV: wanted.job,
        names.KIND_ENV: wanted.kind,
        names.SECRET_ENV: f"{SECRET}/secret",
        names.TERMINATION_ENV: names.TERMINATION_LOG,
        "HOLDFAST_STATE_DIR": STATE,
    }
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def service(wanted: Wanted) -> Document:
    """Returns the Service that gives the controller's pod a DNS name, also before it is ready."""
    name = names.controller_name(wanted.job)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": wanted.namespace, "labels": labels(wanted.job)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels(wanted.job, names.ROLE_CONTROLLER),
            "ports": [{"name": "holdfast", "port": names.PORT, "protocol": "TCP"}],
        },
    }


def lease(wanted: Wanted) -> Document:
    """Returns the Lease of the job's controller, which no controller has held yet.

    It is created with the job and deleted with it, so a later job of the same name has a Lease of its own.
    """
    return {**_of(wanted, "coordination.k8s.io/v1", "Lease"), "spec": {"leaseDurationSeconds": 1}}


def secret(wanted: Wanted) -> Document:
    """Returns the Secret by which agents and controller authenticate each other."""
    text = base64.b64encode(wanted.secret.encode()).decode()
    return {**_of(wanted, "v1", "Secret"), "type": "Opaque", "data": {"secret": text}}


def access(wanted: Wanted) -> list[Document]:
    """Returns the controller's service account with its role, whose permissions are limited to this
    namespace.
    """
    name, kind = names.objects_name(wanted.job), OWNERS[wanted.kind]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims"],
            "verbs": ["get", "list", "watch"],
        },
        {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["get", "list", "watch", "patch"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "create", "update", "patch"],
        },
    ]
    if not kind.suspends:
        rules.append({"apiGroups": ["bus.volcano.sh"], "resources": ["commands"], "verbs": ["create"]})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": wanted.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        _of(wanted, "v1", "ServiceAccount"),
        {**_of(wanted, rbac, "Role"), "rules": rules},
        {**_of(wanted, rbac, "RoleBinding"), "subjects": [subject], "roleRef": reference},
    ]


def the_rest(wanted: Wanted, made: Document) -> Sequence[Document]:
    """Returns all objects of the job besides the owner of the pods; they are deleted together with the owner. The
    controller comes last.
    """
    runtime = [training_runtime(wanted)] if wanted.kind == "trainjob" else []
    found = [
        secret(wanted),
        *runtime,
        *access(wanted),
        lease(wanted),
        service(wanted),
        controller_job(wanted),
    ]
    for one in found:
        one["metadata"]["ownerReferences"] = owned_by(made)
    return found


def _of(wanted: Wanted, api_version: str, kind: str) -> Document:
    meta = {
        "name": names.objects_name(wanted.job),
        "namespace": wanted.namespace,
        "labels": labels(wanted.job),
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def _volumes(job: str, claim: str = "") -> list[Document]:
    state: Document = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    return [
        {"name": "holdfast-state", **state},
        {"name": "holdfast-secret", "secret": {"secretName": names.objects_name(job), "defaultMode": 0o440}},
    ]

"""Sets defaults of new objects and refuses invalid ones, as far as the tests depend on it.

source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ and job-v1 (defaults and validation)
"""

from kubernetes.apiserver.answers import Failure

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "number": (int, float),
}
MUTABLE_POD_SPEC = {
    "activeDeadlineSeconds",
    "tolerations",
    "terminationGracePeriodSeconds",
    "nodeName",
    "schedulingGates",
}
# Once a Job exists: suspend, parallelism and, if both change together, completions of an Indexed Job; the
# template's scheduling fields only while it is suspended.
FIXED_JOB_SPEC = (
    "completionMode",
    "podFailurePolicy",
    "podReplacementPolicy",
    "successPolicy",
    "selector",
    "backoffLimitPerIndex",
)


def admit(kind, one):
    """Changes a new object in place. raises: Failure 422"""
    if kind.schema:
        _validate(kind.kind, one, kind.schema, "")
    if kind.status and kind.kind != "Node":
        one.pop("status", None)
    if kind.key == ("", "pods"):
        _pod(one)
    elif kind.key == ("batch", "jobs"):
        _job(one)
    elif kind.kind == "CustomResourceDefinition":
        pass
    elif kind.key == ("jobset.x-k8s.io", "jobsets"):
        _jobset(one)


def drop_disabled(kind, one, version):
    """Drops fields of a pod whose features an older server does not have.

    source: https://kubernetes.io/docs/reference/using-api/deprecation-policy/, and "drop disabled fields" of
    https://github.com/kubernetes/community/blob/main/contributors/devel/sig-architecture/api_changes.md
    """
    if kind.key != ("", "pods") or version >= (1, 36):
        return
    if version >= (1, 34):  # has ContainerRestartRules (KEP-5307), whose only action is Restart
        for container in one["spec"]["containers"]:
            for rule in container.get("restartPolicyRules", ()):
                if rule["action"] != "Restart":
                    text = f'Unsupported value: {rule["action"]!r}: supported values: "Restart"'
                    raise invalid(one, f"spec.containers[0].restartPolicyRules[0].action: {text}")
    for container in one["spec"]["containers"]:
        container.pop("restartPolicyRules", None)
    for volume in one["spec"].get("volumes", ()):
        volume.pop("image", None)


def admit_change(kind, one, before):
    """raises: Failure 422"""
    if kind.schema:
        _validate(kind.kind, one, kind.schema, "")
    if kind.key == ("", "pods"):
        _pod_change(one, before)
    elif kind.key == ("batch", "jobs"):
        _job_change(one, before)
    elif kind.key == ("jobset.x-k8s.io", "jobsets") and not before["spec"].get("suspend"):
        _unchanged(one, before, ("failurePolicy", "successPolicy", "network", "replicatedJobs"))


def _unchanged(one, before, names):
    for name in names:
        if one["spec"].get(name) != before["spec"].get(name):
            raise invalid(one, f"spec.{name}: Invalid value: field is immutable")


def _pod_change(one, before):
    def without_images(pod):
        return [
            {key: value for key, value in each.items() if key != "image"}
            for each in pod["spec"]["containers"]
        ]

    keys = {*one["spec"], *before["spec"]} - MUTABLE_POD_SPEC
    changed = {key for key in keys if one["spec"].get(key) != before["spec"].get(key)}
    if without_images(one) == without_images(before):
        changed.discard("containers")
    if changed:
        raise invalid(
            one, f"spec: Forbidden: pod updates may not change fields other than image ({sorted(changed)})"
        )


def _job_change(one, before):
    _unchanged(one, before, FIXED_JOB_SPEC)
    spec, old = one["spec"], before["spec"]
    if not (old.get("suspend") and not before.get("status", {}).get("startTime")):
        _unchanged(one, before, ("template",))
    if spec.get("completions") != old.get("completions") and spec.get("completions") != spec.get(
        "parallelism"
    ):
        raise invalid(one, "spec.completions: Invalid value: must be equal to parallelism when it changes")


def invalid(one, message):
    return Failure(
        422, f'{one.get("kind", "object")} "{one["metadata"].get("name", "")}" is invalid: {message}'
    )


def _pod(one):
    spec = one.setdefault("spec", {})
    containers = spec.get("containers")
    if not containers:
        raise invalid(one, "spec.containers: Required value")
    names = [container.get("name") for container in containers]
    if not all(names) or len(set(names)) < len(names):
        raise invalid(one, "spec.containers: each needs a name of its own")
    for container in containers:
        if container.get("restartPolicyRules") and not container.get("restartPolicy"):
            raise invalid(one, "spec.containers[].restartPolicy: Required value: must specify restartPolicy")
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    for container in [*containers, *spec.get("initContainers", ())]:
        for mount in container.get("volumeMounts", ()):
            if mount["name"] not in volumes:
                raise invalid(one, f"spec.containers[].volumeMounts[].name: Not found: {mount['name']!r}")
    defaults = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
    }
    one["spec"] = {**defaults, **spec}
    one["status"] = {"phase": "Pending", "qosClass": "BestEffort"}


def _job(one):
    spec = one.setdefault("spec", {})
    template = spec.get("template", {}).get("spec", {})
    if not template.get("containers"):
        raise invalid(one, "spec.template.spec.containers: Required value")
    if template.get("restartPolicy") not in ("Never", "OnFailure"):
        raise invalid(
            one, 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
        )
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    indexed = spec.get("completionMode") == "Indexed"
    if indexed and spec.get("completions") is None:
        raise invalid(one, "spec.completions: Required value: when completion mode is Indexed")
    if spec.get("podFailurePolicy"):
        if template["restartPolicy"] != "Never":
            raise invalid(one, "spec.podFailurePolicy: only with restartPolicy Never")
        if spec.get("podReplacementPolicy", "Failed") != "Failed":
            raise invalid(one, "spec.podReplacementPolicy: must be Failed when a podFailurePolicy is set")
    if spec.get("successPolicy") and not indexed:
        raise invalid(one, "spec.successPolicy: only with completionMode Indexed")
    replaces = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    defaults = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": replaces,
    }
    one["spec"] = {**defaults, **spec}


def _jobset(one):
    for number, part in enumerate(one.get("spec", {}).get("replicatedJobs", ())):
        if not part.get("name") or "template" not in part:
            raise invalid(one, f"spec.replicatedJobs[{number}]: name and template are required")


def _validate(name, value, schema, path):
    wanted = TYPES.get(schema.get("type", ""))
    wrong = wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and wanted is int))
    if wrong:
        raise Failure(
            422, f"{name} is invalid: {path or '<root>'}: Invalid value: must be of type {schema['type']}"
        )
    if "enum" in schema and value not in schema["enum"]:
        raise Failure(422, f"{name} is invalid: {path}: Unsupported value: {value!r}")
    for key, inner in schema.get("properties", {}).items():
        if isinstance(value, dict) and value.get(key) is not None:
            _validate(name, value[key], inner, f"{path}.{key}".lstrip("."))

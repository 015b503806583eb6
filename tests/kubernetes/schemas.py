"""Validates documents against the API's own models: unknown fields, types and enums, in core kinds and custom resources.

Core kinds: lightkube-models, which is made from the OpenAPI of Kubernetes. Custom resources: the fields in
shared/facts/k8s_kinds.json, from the operators' CRDs; their pod templates are the core kind.
"""

import functools
import importlib
import json
import types
import typing
from pathlib import Path

FACTS = Path(__file__).parents[3] / "shared" / "facts" / "k8s_kinds.json"
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
CORE = {
    ("v1", "Secret"): "core_v1.Secret",
    ("v1", "Service"): "core_v1.Service",
    ("v1", "ServiceAccount"): "core_v1.ServiceAccount",
    ("v1", "ConfigMap"): "core_v1.ConfigMap",
    ("v1", "Pod"): "core_v1.Pod",
    ("batch/v1", "Job"): "batch_v1.Job",
    ("rbac.authorization.k8s.io/v1", "Role"): "rbac_v1.Role",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "rbac_v1.RoleBinding",
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): "rbac_v1.ClusterRole",
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): "rbac_v1.ClusterRoleBinding",
    (
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicy",
    ): "admissionregistration_v1.MutatingAdmissionPolicy",
    (
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicyBinding",
    ): "admissionregistration_v1.MutatingAdmissionPolicyBinding",
}
# Where a custom resource has a core type: the facts end there.
POD_TEMPLATE, JOB_SPEC = "core_v1.PodTemplateSpec", "batch_v1.JobSpec"
INSIDE = {
    "JobSet": {"spec.replicatedJobs[].template.spec": JOB_SPEC},
    "TrainingRuntime": {"spec.template.spec.replicatedJobs[].template.spec": JOB_SPEC},
    "ClusterTrainingRuntime": {"spec.template.spec.replicatedJobs[].template.spec": JOB_SPEC},
    "Job": {"spec.tasks[].template": POD_TEMPLATE},
}


def has_facts():
    return FACTS.exists()


def problems(document):
    """What the API server would refuse; nothing known of a kind is a problem, too, unless it is PyTorchJob."""
    named = (document["apiVersion"], document["kind"])
    if named in CORE:
        return list(core(document, model(CORE[named]), document["kind"]))
    if document["kind"] == "PyTorchJob":
        parts = document["spec"]["pytorchReplicaSpecs"].values()
        return [one for part in parts for one in core(part["template"], model(POD_TEMPLATE), "template")]
    known = facts().get(named)
    if known is None:
        return [f"nothing is known of {named}"]
    fields = {field["path"]: field for field in known["fields"]}
    return list(custom({"spec": document["spec"]}, fields, INSIDE.get(document["kind"], {}), ""))


@functools.cache
def facts():
    found = json.loads(FACTS.read_text()) if has_facts() else []
    return {(one["apiVersion"], one["kind"]): one for one in found}


def model(name):
    module, _, kind = name.partition(".")
    return getattr(importlib.import_module(f"lightkube.models.{module}"), kind)


def core(value, wanted, path):
    """Problems of a value whose type is a model, or what a model's field is."""
    if value is None:
        return
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        inner = [one for one in typing.get_args(wanted) if one is not type(None)]
        if len(inner) == 1:
            yield from core(value, inner[0], path)
        return
    if origin is list:
        if not isinstance(value, list):
            yield f"{path} is not a list"
            return
        for number, one in enumerate(value):
            yield from core(one, typing.get_args(wanted)[0], f"{path}[{number}]")
    elif origin is dict or wanted in (dict, typing.Any):
        if wanted is not typing.Any and not isinstance(value, dict):
            yield f"{path} is not a mapping"
    elif hasattr(wanted, "__struct_fields__"):
        yield from fields_of(value, wanted, path)
    elif wanted in (str, int, bool) and (
        not isinstance(value, wanted) or isinstance(value, bool) != (wanted is bool)
    ):
        yield f"{path} is {value!r}, not {wanted.__name__}"


def hints_of(kind):
    """Types of a model's fields, by the API's names."""
    return {name.rstrip("_"): hint for name, hint in typing.get_type_hints(kind).items()}


def inner(kind, name):
    """The model of a field, without Optional and List."""
    found = hints_of(kind)[name]
    while typing.get_args(found):
        found = next(one for one in typing.get_args(found) if one is not type(None))
    return found


def fields_of(value, wanted, path):
    if not isinstance(value, dict):
        yield f"{path} is not a mapping"
        return
    hints = typing.get_type_hints(wanted)
    for key, inner in value.items():
        field = key if key in hints else f"{key}_"
        if field not in hints:
            yield f"{path} has no field {key}"
        else:
            yield from core(inner, hints[field], f"{path}.{key}")


def custom(value, fields, inside, path):
    if path in inside:
        yield from core(value, model(inside[path]), path)
        return
    if path:
        if path not in fields:
            yield f"there is no field {path}"
            return
        field = fields[path]
        if not isinstance(value, TYPES.get(field["type"], object)):
            yield f"{path} is no {field['type']}"
        if value not in field.get("enum", [value]):
            yield f"{path}: {value!r} is none of {field['enum']}"
    if isinstance(value, dict):
        for key, inner in value.items():
            is_map = f"{path}{{}}" in fields
            yield from custom(inner, fields, inside, f"{path}{{}}" if is_map else f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from custom(inner, fields, inside, f"{path}[]")

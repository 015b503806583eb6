"""Makes pods of templates, and reads pods, for the emulated controllers."""

import copy

from kubernetes.apiserver.answers import now
from kubernetes.apiserver.kinds import Kind

POD = Kind("", "v1", "Pod", "pods", status=True)
PODS = ("", "pods")


def owner(one):
    meta = one["metadata"]
    return {
        "apiVersion": one["apiVersion"],
        "kind": one["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned(store, one, key=PODS):
    """The objects of that kind that this one controls."""
    meta = one["metadata"]
    return [
        each
        for each in store.all(*key, meta["namespace"])
        if any(
            ref["uid"] == meta["uid"] and ref.get("controller")
            for ref in each["metadata"].get("ownerReferences", ())
        )
    ]


def of_template(template, name, by, labels, annotations, finalizers=()):
    template = copy.deepcopy(template)
    meta = template.get("metadata") or {}
    made = {
        "name": name,
        "labels": {**(meta.get("labels") or {}), **labels},
        "annotations": {**(meta.get("annotations") or {}), **annotations},
        "ownerReferences": [owner(by)],
    }
    if finalizers:
        made["finalizers"] = list(finalizers)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"]}


def phase(pod):
    return pod.get("status", {}).get("phase", "Pending")


def is_ending(pod):
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_over(pod):
    return phase(pod) in ("Succeeded", "Failed")


def is_ready(pod):
    return any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in pod.get("status", {}).get("conditions", ())
    )


def condition(kind, reason="", message="", at="", status="True"):
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def with_condition(conditions, new):
    return [one for one in conditions or () if one["type"] != new["type"]] + [new]


def with_suspended(conditions, wanted, kind):
    """The conditions with Suspended, as it has to be now; unchanged where it never was."""
    has = any((one["type"], one["status"]) == ("Suspended", "True") for one in conditions or ())
    if has == wanted:
        return conditions or []
    reason = f"{kind}Suspended" if wanted else f"{kind}Resumed"
    new = condition("Suspended", reason, reason, now(), "True" if wanted else "False")
    return with_condition(conditions, new)


def has_condition(one, kind):
    found = (one.get("status") or {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in found)

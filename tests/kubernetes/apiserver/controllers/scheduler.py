"""Emulates the scheduler: taints, node selectors, GPUs, spread over hosts; says in a condition and an Event why a pod waits.

source: https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/,
https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/
"""

from kubernetes.apiserver.answers import now
from kubernetes.apiserver.controllers.pods import PODS, condition, is_ending, is_over, with_condition
from kubernetes.apiserver.kinds import Kind
from kubernetes.apiserver.selectors import matches_labels
from kubernetes.apiserver.store import made_up

NODES = ("", "nodes")
EVENT = Kind("", "v1", "Event", "events")
GPU = "nvidia.com/gpu"


class Scheduler:
    def __init__(self, store):
        self._store = store

    def turn(self, now_s):
        waiting = [
            pod
            for pod in self._store.all(*PODS)
            if not pod["spec"].get("nodeName")
            and not is_ending(pod)
            and not pod["spec"].get("schedulingGates")
        ]
        for pod in sorted(waiting, key=lambda one: int(one["metadata"]["resourceVersion"])):
            self._place(pod)

    def _place(self, pod):
        whys = {}
        here = [one for one in self._store.all(*PODS) if one["spec"].get("nodeName") and not is_over(one)]
        fits = []
        for node in self._store.all(*NODES):
            why = _why_not(pod, node, here)
            if why:
                whys[why] = whys.get(why, 0) + 1
            else:
                fits.append(node)
        if not fits:
            self._say(pod, whys)
            return
        name = min(fits, key=lambda node: (_load(node, here), node["metadata"]["name"]))["metadata"]["name"]
        bound = self._store.change(PODS, pod, spec={**pod["spec"], "nodeName": name})
        state = bound["status"]
        good = condition("PodScheduled", at=now())
        self._store.change(
            PODS, bound, status={**state, "conditions": with_condition(state.get("conditions"), good)}
        )

    def _say(self, pod, whys):
        total = len(self._store.all(*NODES))
        parts = (
            ", ".join(f"{count} {why}" for why, count in sorted(whys.items()))
            or "no nodes available to schedule pods"
        )
        message = f"0/{total} nodes are available: {parts}."
        bad = condition("PodScheduled", "Unschedulable", message, now(), "False")
        state = pod["status"]
        old = next((one for one in state.get("conditions", ()) if one["type"] == "PodScheduled"), None)
        if old is not None and old["message"] == message:
            return
        self._store.change(
            PODS, pod, status={**state, "conditions": with_condition(state.get("conditions"), bad)}
        )
        event(self._store, pod, "FailedScheduling", message, "Warning", "default-scheduler")


def event(store, about, reason, message, type_="Normal", by="kubelet"):
    """Creates an Event about an object."""
    meta = about["metadata"]
    involved = {key: meta[key] for key in ("name", "namespace", "uid") if key in meta}
    one = {
        "metadata": {"name": f"{meta['name']}.{made_up(10)}"},
        "involvedObject": {"kind": about["kind"], "apiVersion": about["apiVersion"], **involved},
        "reason": reason,
        "message": message,
        "type": type_,
        "count": 1,
        "firstTimestamp": now(),
        "lastTimestamp": now(),
        "source": {"component": by},
    }
    store.create(EVENT, meta.get("namespace", "default"), one)


def _why_not(pod, node, here):
    spec = node.get("spec") or {}
    for taint in spec.get("taints", ()):
        if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerates(pod, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    labels = node["metadata"].get("labels") or {}
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
        return "node(s) didn't match Pod's node affinity/selector"
    if not _fits_affinity(pod, labels):
        return "node(s) didn't match Pod's node affinity/selector"
    name = node["metadata"]["name"]
    mine = [one for one in here if one["spec"]["nodeName"] == name]
    free = int(((node.get("status") or {}).get("allocatable") or {}).get(GPU, 0)) - sum(map(_gpus, mine))
    if _gpus(pod) > free:
        return f"Insufficient {GPU}"
    for spread in pod["spec"].get("topologySpreadConstraints", ()):
        if (
            spread["whenUnsatisfiable"] == "DoNotSchedule"
            and spread["topologyKey"] == "kubernetes.io/hostname"
        ):
            if any(matches_labels(spread["labelSelector"], one["metadata"].get("labels")) for one in mine):
                return "node(s) didn't match pod topology spread constraints"
    for term in ((pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution", ()
    ):
        if any(matches_labels(term["labelSelector"], one["metadata"].get("labels")) for one in mine):
            return "node(s) didn't match pod anti-affinity rules"
    return ""


def _fits_affinity(pod, labels):
    """source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity (In and NotIn)"""
    of_node = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = of_node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    for term in required["nodeSelectorTerms"]:
        found = [
            (labels.get(one["key"]) in one["values"]) == (one["operator"] == "In")
            for one in term.get("matchExpressions", ())
        ]
        if found and all(found):
            return True
    return False


def _tolerates(pod, taint):
    for one in pod["spec"].get("tolerations", ()):
        keyed = one.get("key") in (None, "", taint["key"]) and one.get("effect") in (
            None,
            "",
            taint["effect"],
        )
        valued = one.get("operator", "Equal") == "Exists" or one.get("value", "") == taint.get("value", "")
        if keyed and valued:
            return True
    return False


def _gpus(pod):
    return sum(
        int(((container.get("resources") or {}).get("limits") or {}).get(GPU, 0))
        for container in pod["spec"]["containers"]
    )


def _load(node, here):
    return sum(1 for one in here if one["spec"]["nodeName"] == node["metadata"]["name"])

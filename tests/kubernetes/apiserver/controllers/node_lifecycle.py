"""Emulates the node lifecycle: silent kubelets, taints, eviction by taint, and the out-of-service taint.

| behaviour | source |
|---|---|
| a node whose Lease is not renewed for the grace period (50 s) becomes Ready Unknown | kubernetes.io/docs/concepts/architecture/nodes/#node-heartbeats |
| taints node.kubernetes.io/unreachable or not-ready, NoSchedule and NoExecute, follow from Ready | …/nodes/#condition |
| NoExecute deletes pods after their tolerationSeconds, with the condition DisruptionTarget | kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/ |
| a pod on a frozen node stays Terminating | …/nodes/#condition |
| out-of-service: Terminating pods of a node that is not Ready are failed and removed by force | kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown; pkg/controller/podgc/gc_controller.go, gcTerminating |
| pods of deleted nodes are removed (pod garbage collector) | kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection |
"""

from kubernetes.apiserver.answers import now, seconds
from kubernetes.apiserver.api import disrupted
from kubernetes.apiserver.controllers.pods import PODS, condition, is_ending, is_over, with_condition

NODES = ("", "nodes")
UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
QUARANTINE_S = 40.0  # before the pods of a node that is not there are removed
TOLERATED_S = 300.0  # of pods without a toleration of their own: admission adds one


class NodeLifecycle:
    def __init__(self, store, grace_s):
        self._store, self._grace_s = store, grace_s
        self._missing = {}  # by the name of a node that is not there: since when

    def turn(self, now_s):
        for node in self._store.all(*NODES):
            self._judge(node, now_s)
        nodes = {node["metadata"]["name"]: node for node in self._store.all(*NODES)}
        for pod in self._store.all(*PODS):
            self._evict(pod, nodes, now_s)

    def _judge(self, node, now_s):
        lease = self._store.find("coordination.k8s.io", "leases", "kube-node-lease", node["metadata"]["name"])
        state = node.get("status") or {}
        ready = next((one for one in state.get("conditions", ()) if one["type"] == "Ready"), None)
        if lease is None or ready is None:
            return
        silent = now_s - seconds(lease["spec"]["renewTime"]) > self._grace_s
        if silent and ready["status"] != "Unknown":
            lost = condition(
                "Ready", "NodeStatusUnknown", "Kubelet stopped posting node status.", now(), "Unknown"
            )
            node = self._store.change(
                NODES, node, status={**state, "conditions": with_condition(state["conditions"], lost)}
            )
            ready = lost
        self._taint(node, ready["status"])

    def _taint(self, node, ready):
        spec = node.get("spec") or {}
        taints = [
            one for one in spec.get("taints", ()) if one["key"] not in (UNREACHABLE, NOT_READY, UNSCHEDULABLE)
        ]
        if spec.get("unschedulable"):
            taints.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
        if ready != "True":
            key = UNREACHABLE if ready == "Unknown" else NOT_READY
            old = {(one["key"], one["effect"]): one for one in spec.get("taints", ())}
            for effect in ("NoSchedule", "NoExecute"):
                stamp = {"timeAdded": now()} if effect == "NoExecute" else {}
                taints.append(old.get((key, effect)) or {"key": key, "effect": effect, **stamp})
        if taints != list(spec.get("taints", ())):
            self._store.change(NODES, node, spec={**spec, "taints": taints})

    def _evict(self, pod, nodes, now_s):
        name = pod["spec"].get("nodeName")
        if not name:
            return
        node = nodes.get(name)
        if node is None:
            missing_s = now_s - self._missing.setdefault(name, now_s)
            if not is_over(pod) and missing_s >= QUARANTINE_S:
                self._fail(pod, "DeletionByPodGC", "PodGC: node no longer exists")
            return
        for taint in (node.get("spec") or {}).get("taints", ()):
            if taint["effect"] != "NoExecute":
                continue
            if taint["key"] == OUT_OF_SERVICE and is_ending(pod) and not _is_ready(node):
                self._fail(pod, "DeletionByPodGC", "PodGC: node is out of service")
                return
            after_s = _tolerated_s(pod, taint)
            since_s = seconds(taint["timeAdded"]) if "timeAdded" in taint else now_s
            if after_s is not None and now_s - since_s >= after_s and not is_ending(pod) and not is_over(pod):
                pod = disrupted(
                    self._store,
                    pod,
                    "DeletionByTaintManager",
                    f"Taint manager: deleting due to {taint['key']}",
                )
                self._store.delete(PODS, pod)

    def _fail(self, pod, reason, message):
        pod = disrupted(self._store, pod, reason, message)
        pod = self._store.change(PODS, pod, status={**pod["status"], "phase": "Failed"}) or pod
        self._store.delete(PODS, pod, 0)


def _is_ready(node):
    found = (node.get("status") or {}).get("conditions", ())
    return any((one["type"], one["status"]) == ("Ready", "True") for one in found)


def _tolerated_s(pod, taint):
    """After how long the pod is deleted; None: never."""
    for one in pod["spec"].get("tolerations", ()):
        keyed = one.get("key") in (None, "", taint["key"]) and one.get("effect") in (
            None,
            "",
            taint["effect"],
        )
        valued = one.get("operator", "Equal") == "Exists" or one.get("value", "") == taint.get("value", "")
        if keyed and valued:
            seconds_ = one.get("tolerationSeconds")
            return None if seconds_ is None else float(seconds_)
    return TOLERATED_S if taint["key"] in (UNREACHABLE, NOT_READY) else 0.0

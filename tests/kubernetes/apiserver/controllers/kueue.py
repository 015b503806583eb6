"""Emulates Kueue for Jobs with a queue: admission by quota, and preemption.

| behaviour | source |
|---|---|
| a Job with the label kueue.x-k8s.io/queue-name is kept suspended until it is admitted, whoever resumes it | kueue.sigs.k8s.io/docs/tasks/run/jobs/, docs/concepts/workload/ |
| an admitted Job is resumed | docs/concepts/admission/ |
| a Job that is evicted, such as by preemption, is suspended and queued again | docs/concepts/preemption/, docs/concepts/workload/#eviction |
| topology-aware scheduling: pods of an admitted Job have a scheduling gate, until Kueue gives each the node of its assignment | docs/concepts/topology_aware_scheduling/ |
| hot swap: a node that is not ready, and whose pods have ended or are ending, is replaced in the assignment | …/topology_aware_scheduling/#hot-swap-support |
"""

from kubernetes.apiserver.controllers.pods import PODS, is_ending, is_over, owned

QUEUE = "kueue.x-k8s.io/queue-name"
KEY = ("batch", "jobs")
TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"  # annotation of the pods' template
GATE = {"name": "kueue.x-k8s.io/topology"}
HOST = "kubernetes.io/hostname"
INDEX = "batch.kubernetes.io/job-completion-index"


class Kueue:
    """`quota`: pods that all queued Jobs may have together."""

    def __init__(self, store):
        self._store = store
        self._admitted = set()
        self.quota = 0
        self._places = {}  # of each Job with a topology: node by the index of a pod
        self.swaps = []  # (node before, node after)

    def turn(self, now_s):
        left = self.quota
        for job in self._store.all(*KEY):
            if QUEUE not in job["metadata"].get("labels", {}):
                continue
            uid, wanted = job["metadata"]["uid"], job["spec"]["parallelism"]
            if wanted <= left:
                left -= wanted
                if uid not in self._admitted:
                    self._admitted.add(uid)
                    self._admit(job)
                if has_topology(job):
                    self._assign(job)
            else:
                self._admitted.discard(uid)
                if not job["spec"].get("suspend"):
                    self._store.change(KEY, job, spec={**job["spec"], "suspend": True})

    def _admit(self, job):
        spec = {**job["spec"], "suspend": False}
        if has_topology(job):
            template = spec["template"]
            spec["template"] = {**template, "spec": {**template["spec"], "schedulingGates": [GATE]}}
        self._store.change(KEY, job, spec=spec)

    def _assign(self, job):
        """Gives gated pods their nodes, and replaces failed nodes."""
        places = self._places.setdefault(job["metadata"]["uid"], {})
        pods = owned(self._store, job)
        ready = [node for node in sorted(self._nodes()) if self._nodes()[node]]
        for index, node in list(places.items()):
            there = [one for one in pods if one["spec"].get("nodeName") == node]
            if node not in ready and all(is_over(one) or is_ending(one) for one in there):
                places[index] = next(one for one in ready if one not in places.values())
                self.swaps.append((node, places[index]))
        for pod in pods:
            if GATE in pod["spec"].get("schedulingGates", ()):
                index = pod["metadata"]["annotations"][INDEX]
                if index not in places:
                    places[index] = next(one for one in ready if one not in places.values())
                spec = {**pod["spec"], "schedulingGates": [], "nodeSelector": {HOST: places[index]}}
                self._store.change(PODS, pod, spec=spec)

    def _nodes(self):
        """Whether each node is ready."""
        return {
            node["metadata"]["name"]: any(
                (one["type"], one["status"]) == ("Ready", "True") for one in node["status"]["conditions"]
            )
            for node in self._store.all("", "nodes")
        }


def has_topology(job):
    return TOPOLOGY in (job["spec"]["template"].get("metadata") or {}).get("annotations", {})

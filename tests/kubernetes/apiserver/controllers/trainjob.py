"""Emulates the controller of Kubeflow Trainer v2: a TrainJob and its runtime become a JobSet of the same name.

| behaviour | source |
|---|---|
| the runtime's template is a JobSet; the TrainJob's command, args, image, env, resources and numNodes go into its part `node` (ancestor `trainer`) | www.kubeflow.org/docs/components/trainer/operator-guides/job-template/ |
| suspend is passed on; conditions Complete and Failed follow the JobSet's | github.com/kubeflow/trainer, docs/proposals/2170-kubeflow-trainer-v2 |
"""

import copy

from kubernetes.apiserver.answers import now
from kubernetes.apiserver.controllers.pods import (
    condition,
    has_condition,
    is_ending,
    owned,
    owner,
    with_condition,
    with_suspended,
)
from kubernetes.apiserver.kinds import Kind

KEY, SETS = ("trainer.kubeflow.org", "trainjobs"), ("jobset.x-k8s.io", "jobsets")
SET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", status=True)
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
RUNTIMES = {"ClusterTrainingRuntime": "clustertrainingruntimes", "TrainingRuntime": "trainingruntimes"}


class TrainJobs:
    def __init__(self, store, status_server):
        self._store, self._status_server = store, status_server

    def turn(self, now_s):
        for one in self._store.all(*KEY):
            if not is_ending(one) and not has_condition(one, "Complete") and not has_condition(one, "Failed"):
                self._turn(one)

    def _turn(self, one):
        made = owned(self._store, one, SETS)
        if not made:
            self._make(one)
            return
        state = dict(one.get("status") or {})
        for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
            if has_condition(made[0], theirs):
                end = condition(ours, f"JobSet{theirs}", "", now())
                self._store.change(
                    KEY, one, status={**state, "conditions": with_condition(state.get("conditions"), end)}
                )
        wanted = bool(one["spec"].get("suspend"))
        if bool(made[0]["spec"].get("suspend")) != wanted:
            self._store.change(SETS, made[0], spec={**made[0]["spec"], "suspend": wanted})
        told = with_suspended(state.get("conditions"), wanted, "TrainJob")
        if told != state.get("conditions", []) and not has_condition(made[0], "Completed"):
            self._store.change(KEY, one, status={**state, "conditions": told})

    def _make(self, one):
        meta, spec = one["metadata"], one["spec"]
        ref = spec["runtimeRef"]
        kind = ref.get("kind", "ClusterTrainingRuntime")
        where = "" if kind == "ClusterTrainingRuntime" else meta["namespace"]
        runtime = self._store.find("trainer.kubeflow.org", RUNTIMES[kind], where, ref["name"])
        if runtime is None:
            return
        template = copy.deepcopy(runtime["spec"]["template"])
        for part in template["spec"]["replicatedJobs"]:
            if (part["template"].get("metadata") or {}).get("labels", {}).get(STEP) == "trainer":
                _fill(part["template"]["spec"], spec.get("trainer") or {})
                if self._status_server.is_on:
                    self._status_server.inject(one, part["template"]["spec"]["template"]["spec"])
        labels = {**((template.get("metadata") or {}).get("labels") or {}), **(meta.get("labels") or {})}
        made = {
            "metadata": {"name": meta["name"], "labels": labels, "ownerReferences": [owner(one)]},
            "spec": {**template["spec"], "suspend": bool(spec.get("suspend"))},
        }
        self._store.create(SET, meta["namespace"], made)


def _fill(job, trainer):
    if trainer.get("numNodes"):
        job["parallelism"] = job["completions"] = trainer["numNodes"]
    container = next(one for one in job["template"]["spec"]["containers"] if one["name"] == "node")
    for name in ("image", "command", "args"):
        if trainer.get(name):
            container[name] = trainer[name]
    if trainer.get("env"):
        known = {one["name"] for one in trainer["env"]}
        container["env"] = [one for one in container.get("env", ()) if one["name"] not in known] + trainer[
            "env"
        ]
    if trainer.get("resourcesPerNode"):
        container["resources"] = trainer["resourcesPerNode"]

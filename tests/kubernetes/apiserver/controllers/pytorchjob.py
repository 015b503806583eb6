"""Emulates the PyTorchJob controller of Kubeflow's training operator v1: a Master and Workers, restarted by exit code.

| behaviour | source |
|---|---|
| pods are named JOB-master-0 and JOB-worker-N; MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK and PET_* in every container | www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch/ |
| restartPolicy ExitCode: codes 1 to 127 fail the job, from 128 on the pod is deleted and made again, up to backoffLimit | …/legacy-v1/user-guides/job-scheduling/, github.com/kubeflow/trainer release-1.9 pkg/util/train/train_util.go |
| the Master's success is the job's | github.com/kubeflow/trainer release-1.9 pkg/controller.v1/pytorch/pytorchjob_controller.go |
| runPolicy.suspend removes the pods | the same |
"""

from kubernetes.apiserver.answers import now
from kubernetes.apiserver.controllers.pods import (
    POD,
    PODS,
    condition,
    has_condition,
    is_ending,
    of_template,
    owned,
    phase,
    with_condition,
)

KEY = ("kubeflow.org", "pytorchjobs")
PORT, RETRYABLE = 23456, 128
LABEL = "training.kubeflow.org/"


class PyTorchJobs:
    def __init__(self, store):
        self._store = store
        self._retries = {}  # by uid of the job

    def turn(self, now_s):
        for job in self._store.all(*KEY):
            if (
                not is_ending(job)
                and not has_condition(job, "Succeeded")
                and not has_condition(job, "Failed")
            ):
                self._turn(job)

    def _turn(self, job):
        pods = owned(self._store, job)
        if (job["spec"].get("runPolicy") or {}).get("suspend"):
            for pod in pods:
                self._remove(pod)
            return
        master = f"{job['metadata']['name']}-master-0"
        for pod in pods:
            if phase(pod) == "Succeeded" and pod["metadata"]["name"] == master:
                self._end(job, "Succeeded", "PyTorchJobSucceeded")
                return
            if phase(pod) == "Failed" and not self._retried(job, pod):
                self._end(job, "Failed", "PyTorchJobFailed")
                return
        self._make(job, {pod["metadata"]["name"] for pod in pods})

    def _retried(self, job, pod):
        """Removes a failed pod that is to be made again; False: the job has failed."""
        code = _exit_code(pod)
        uid = job["metadata"]["uid"]
        limit = (job["spec"].get("runPolicy") or {}).get("backoffLimit")
        if code < RETRYABLE or (limit is not None and self._retries.get(uid, 0) >= limit):
            return False
        if not is_ending(pod):
            self._retries[uid] = self._retries.get(uid, 0) + 1
            self._remove(pod)
        return True

    def _remove(self, pod):
        if not is_ending(pod):
            self._store.delete(PODS, pod)

    def _make(self, job, have):
        parts = job["spec"]["pytorchReplicaSpecs"]
        total = sum(part.get("replicas", 1) for part in parts.values())
        rank = 0
        for kind in ("Master", "Worker"):
            for number in range(parts.get(kind, {}).get("replicas", 1) if kind in parts else 0):
                name = f"{job['metadata']['name']}-{kind.lower()}-{number}"
                if name not in have:
                    self._make_pod(job, parts[kind]["template"], name, kind, number, (rank, total))
                rank += 1

    def _make_pod(self, job, template, name, kind, number, place):
        labels = {f"{LABEL}replica-type": kind.lower(), f"{LABEL}replica-index": str(number)}
        pod = of_template(template, name, job, labels, {})
        pod["spec"]["restartPolicy"] = "Never"
        pod["spec"].setdefault("terminationGracePeriodSeconds", 30)
        rank, total = map(str, place)
        master = f"{job['metadata']['name']}-master-0"
        env = {
            "MASTER_ADDR": master,
            "MASTER_PORT": PORT,
            "WORLD_SIZE": total,
            "RANK": rank,
            "PET_NNODES": total,
        }
        env |= {"PET_NODE_RANK": rank, "PET_MASTER_ADDR": master, "PET_MASTER_PORT": PORT}
        for container in pod["spec"]["containers"]:
            container["env"] = [
                *container.get("env", ()),
                *({"name": key, "value": str(value)} for key, value in env.items()),
            ]
        pod["status"] = {"phase": "Pending"}
        self._store.create(POD, job["metadata"]["namespace"], pod)

    def _end(self, job, kind, reason):
        state = dict(job.get("status") or {})
        end = condition(kind, reason, "", now())
        self._store.change(
            KEY, job, status={**state, "conditions": with_condition(state.get("conditions"), end)}
        )


def _exit_code(pod):
    codes = [
        (one.get("state", {}).get("terminated") or {}).get("exitCode", RETRYABLE)
        for one in pod.get("status", {}).get("containerStatuses", ())
    ]
    return max(codes, default=RETRYABLE)

"""Wrapped manifests of each kind, applied with the real kubectl, train on pods as processes and recover from faults."""

import os
import subprocess
import sys

import pytest
import yaml

from kubernetes.kubectl import apply, kubectl
from kubernetes.whole_job import PODS, RESTARTS, KubernetesJob
from many.whole_job import LONG_S, TRAINING, WORKERS
from run.place import wait_for

pytestmark = pytest.mark.timeout(280)
CHECKS = ("HOLDFAST_BOOT_CHECK", "HOLDFAST_TROUBLESHOOT_WAIT")
WITH_MASTER = ("volcano", "pytorchjob")  # the others have pods of one kind: two of them are enough
SETTINGS = ("HOLDFAST_STANDBY", "HOLDFAST_GRACE", "HOLDFAST_FINISH", *CHECKS)


def pod_spec(job, ranks=1, container="main", words=()):
    passed = {**job.marks, "NOTES": job.path, "XDG_CACHE_HOME": job.env["XDG_CACHE_HOME"]}
    settings = {key: value for key, value in job.env.items() if key in SETTINGS}
    return {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": container,
                "image": "test-image",
                "command": [sys.executable, "-S", str(TRAINING)],
                "args": [str(ranks), *words],
                "env": [{"name": key, "value": str(value)} for key, value in {**passed, **settings}.items()],
            }
        ],
    }


def job_spec(job, container="main"):
    size = {"completions": job.workers, "parallelism": job.workers, "completionMode": "Indexed"}
    return {**size, "template": {"spec": pod_spec(job, container=container)}}


def manifests(job, labels=None):
    """A user's own objects, without Holdfast."""
    meta = {"name": "t", "namespace": "default", **({"labels": labels} if labels else {})}
    if job.kind == "job":
        return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job_spec(job)}]
    if job.kind == "jobset":
        parts = [{"name": "w", "replicas": 1, "template": {"spec": job_spec(job)}}]
        spec = {"failurePolicy": {"maxRestarts": 2}, "replicatedJobs": parts}
        return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}]
    if job.kind == "volcano":
        tasks = [
            {"name": name, "replicas": n, "template": {"spec": pod_spec(job)}}
            for name, n in (("m", 1), ("w", job.workers - 1))
        ]
        spec = {"schedulerName": "volcano", "minAvailable": job.workers, "tasks": tasks}
        return [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": meta, "spec": spec}]
    if job.kind == "pytorchjob":
        parts = {
            name: {
                "replicas": count,
                "restartPolicy": "ExitCode",
                "template": {"spec": pod_spec(job, container="pytorch")},
            }
            for name, count in (("Master", 1), ("Worker", job.workers - 1))
        }
        spec = {"pytorchReplicaSpecs": parts}
        return [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}]
    api = {"apiVersion": "trainer.kubeflow.org/v1alpha1"}
    spec = {"runtimeRef": {"name": "plain"}, "trainer": {"numNodes": job.workers}}
    label = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    template = {
        "metadata": {"labels": label},
        "spec": {"template": {"spec": pod_spec(job, container="node")}},
    }
    jobs = {"replicatedJobs": [{"name": "node", "template": template}]}
    runtime = {"mlPolicy": {"numNodes": 1}, "template": {"spec": jobs}}
    return [
        {**api, "kind": "TrainJob", "metadata": meta, "spec": spec},
        {**api, "kind": "ClusterTrainingRuntime", "metadata": {"name": "plain"}, "spec": runtime},
    ]


def wrapped(job, restarts=RESTARTS, labels=None, flags=(), given=None):
    """By the real command, as a filter. `given`: the manifests, if they are others."""
    words = [
        sys.executable,
        "-m",
        "holdfast",
        "k8s",
        "wrap",
        "-",
        *map(str, flags),
        "--",
        *map(str, restarts),
    ]
    given = yaml.safe_dump_all(given or manifests(job, labels))
    run = subprocess.run(
        words, input=given, capture_output=True, text=True, timeout=60, env={**os.environ, **job.env}
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(params=["job", "jobset", "trainjob", "volcano", "pytorchjob"])
def job(request, tmp_path, cache_home):
    one = KubernetesJob(tmp_path, cache_home, kind=request.param)
    yield one
    one.end()


def test_a_wrapped_job_recovers_inside_its_pods_and_by_its_spare_and_ends_well(job):
    if job.kind == "job":  # one kind for all: its pods are checked, as they are for a person
        job.env = {key: value for key, value in job.env.items() if key not in CHECKS}
    if job.kind not in WITH_MASTER:
        job.workers = 2
    lines = apply(job.server, wrapped(job))
    assert all(line.endswith(" created") for line in lines), lines
    given = job.given_to()
    master = job.pods()[job.placed()[0]]["status"]["podIP"]
    assert {(one["MASTER_ADDR"], one["NNODES"]) for one in given} == {(master, str(job.workers))}
    job.trains()
    job.loses_a_rank_and_a_pod()
    variables = [one for made in job.pods().values() for one in made["spec"]["containers"][0]["env"]]
    assert "HOLDFAST_LIFE_PORT" in {one["name"] for one in variables}
    job.go()
    wait_for(lambda: f"the end of {job.owner()}", lambda: job.owner_says() == "succeeded", LONG_S)
    assert job.server.control("failed") == []


def test_a_failed_training_fails_its_owner_for_good(job):
    job.workers = 2
    apply(job.server, wrapped(job, restarts=(), flags=("--spares", 0)))
    job.given_to()
    job.trains().kill(job.rank(1))
    wait_for(lambda: f"the end of {job.owner()}", lambda: job.owner_says() == "failed", LONG_S)
    wait_for(lambda: f"no pod of {job.pods()}", lambda: not job.pods(), LONG_S)


@pytest.mark.parametrize("job", ["job"], indirect=True)
def test_a_job_in_a_queue_waits_for_its_quota_and_continues_after_a_preemption(job):
    apply(job.server, wrapped(job, labels={"kueue.x-k8s.io/queue-name": "q"}))
    waits = "Job t is suspended"
    wait_for(lambda: f"{waits}: {job.said()}", lambda: waits in job.said(), LONG_S)
    assert not job.pods() and job.owner()["spec"]["suspend"]
    job.server.control("quota", pods=PODS - 1)  # too few: the workers and no spare
    job.server.control("quota", pods=PODS)
    job.given_to()
    job.trains()
    job.server.control("quota", pods=0)
    wait_for(lambda: f"no pod: {job.said()}", lambda: not job.pods(), LONG_S)
    assert job.owner_says() == ""
    job.server.control("quota", pods=PODS)
    job.trains(attempt=2)
    job.go()
    wait_for(lambda: f"the end of {job.owner()}", lambda: job.owner_says() == "succeeded", LONG_S)
    assert job.server.control("failed") == []


def test_a_wrapped_manifest_is_applied_again_and_deleted_with_kubectl(server):
    job = KubernetesJobOf(server)
    text = wrapped(job)
    assert all(line.endswith(" created") for line in apply(server, text))
    assert all(line.endswith((" unchanged", " configured")) for line in apply(server, text))
    kubectl(server, "delete", "-f", "-", "--wait=false", given=text)
    wait_for("the job's objects to be gone", lambda: not server.items("jobs", group="apis/batch/v1"), LONG_S)


class KubernetesJobOf:
    """What `manifests` needs of a job, where no pod runs."""

    def __init__(self, server):
        self.kind, self.path, self.marks, self.server = "job", server.folder, {}, server
        self.workers = WORKERS
        self.env = {"XDG_CACHE_HOME": "/c", "HOLDFAST_STANDBY": "false", "HOLDFAST_GRACE": "3s"}

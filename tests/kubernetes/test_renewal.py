"""A container beside the training that has failed: at the next restart of the job all containers of its pod restart, or another pod comes."""

import os
import signal

import pytest

from kubernetes.kubectl import apply
from kubernetes.whole_job import SPARES, KubernetesJob
from kubernetes.wrap.test_wrapped_jobs import manifests, wrapped
from many.whole_job import LONG_S
from run.place import wait_for

pytestmark = pytest.mark.timeout(280)
SIDE = 'echo $$ > "$NOTES/side-$POD"; while [ ! -e "$NOTES/go" ]; do sleep 0.1; done'


def with_sidecar(job):
    """A Job whose pods have a container beside the training, which ends with it."""
    (made,) = manifests(job)
    env = [
        {"name": "NOTES", "value": str(job.path)},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    side = {"name": "proxy", "image": "i", "command": ["sh", "-c", SIDE], "env": env}
    made["spec"]["template"]["spec"]["containers"].append(side)
    return [made]


def started(job, *flags):
    flags = ("--container", "main", *flags)
    apply(job.server, wrapped(job, flags=flags, given=with_sidecar(job)))
    job.given_to()
    return job.trains()


def side_of(job, pod):
    return int((job.path / f"side-{pod}").read_text())


def sides_status(job, pod):
    return job.pods()[pod]["status"]["containerStatuses"][1]


def end_side(job, pod):
    os.kill(side_of(job, pod), signal.SIGKILL)
    wait_for(
        f"the end of the sidecar of {pod}", lambda: "terminated" in sides_status(job, pod)["state"], LONG_S
    )


def ends_well(job):
    job.go()
    wait_for(lambda: f"the end of {job.owner()}", lambda: job.owner_says() == "succeeded", LONG_S)
    assert job.server.control("failed") == []


def test_all_containers_restart_in_the_same_pod_without_a_write(tmp_path, cache_home):
    job = KubernetesJob(tmp_path, cache_home)
    try:
        started(job, "--restart-containers")
        pod, spare = job.placed()[1], job.spare()
        uid, before = job.pods()[pod]["metadata"]["uid"], side_of(job, pod)
        end_side(job, pod)
        job.trains()
        assert len(job.events("attempt-started")) == 1  # the end of a sidecar ends nothing
        job.writes()
        job.kill(job.rank(1))
        job.trains(attempt=2)
        assert spare in job.placed(2)
        wait_for(lambda: f"its return: {job.said()}", lambda: job.events("node-returned"), LONG_S)
        assert job.pods()[pod]["metadata"]["uid"] == uid
        assert sides_status(job, pod)["restartCount"] == 1 and side_of(job, pod) != before
        assert job.writes() == []
        assert job.has_said("container proxy has ended with exit code 137")
        job.kill(job.rank(2, 2))
        job.trains(attempt=3)
        ends_well(job)
    finally:
        job.end()


def test_without_the_rule_the_pod_is_evicted_and_another_comes(tmp_path, cache_home):
    job = KubernetesJob(tmp_path, cache_home)
    try:
        job.workers = 2
        started(job)
        pod = job.placed()[1]
        end_side(job, pod)
        job.writes()
        job.kill(job.rank(1))
        job.trains(attempt=2)
        assert pod not in job.placed(2)
        wait_for(
            lambda: f"another pod: {list(job.pods())}",
            lambda: len(job.pods()) == job.workers + SPARES and pod not in job.pods(),
        )
        assert [write[:2] for write in job.writes()] == [["create", "pods/eviction"]]
        ends_well(job)
    finally:
        job.end()


@pytest.mark.parametrize(("version", "has_rule"), [([1, 36], True), ([1, 35], False), ([1, 33], False)])
def test_a_submitted_job_has_the_rule_where_the_server_takes_it(tmp_path, cache_home, version, has_rule):
    job = KubernetesJob(tmp_path, cache_home, nodes=0)
    try:
        job.server.control("version", version=version)
        run = job.submit("--detach")
        assert run.code(LONG_S) == 0, job.said()
        (container,) = job.owner()["spec"]["template"]["spec"]["containers"]
        assert ("restartPolicyRules" in container) is has_rule
    finally:
        job.end()

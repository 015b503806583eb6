"""holdfast run on Kubernetes: pods as real processes, through killed ranks and pods, frozen nodes, and a server that is away."""

import signal
import socket
import time

import pytest

from holdfast.engines.kubernetes.names import PORT
from kubernetes.whole_job import PODS, KubernetesJob
from many.whole_job import LONG_S
from run.place import wait_for

pytestmark = pytest.mark.timeout(280)


def other_than_first(job):
    """The pod of the last worker."""
    return job.placed()[-1]


def starts(job, count):
    """So many starts of attempts are in the journal: the last one follows the ranks."""
    wait_for(
        lambda: f"{count} starts:\n{job.said()}",
        lambda: len(job.events("attempt-started")) >= count,
        LONG_S,
    )
    assert len(job.events("attempt-started")) == count


def lose_controller(job):
    """Its pod is removed by force; returns once another one is there."""
    (controller,) = job.pods("controller")
    job.server.delete(f"/api/v1/namespaces/default/pods/{controller}", gracePeriodSeconds=0)
    wait_for(
        lambda: f"another controller:\n{job.said()}",
        lambda: set(job.pods("controller")) - {controller},
        LONG_S,
    )


def listening_instead(pod, until_s):
    """Listens at the address of a pod as soon as its process, which is being ended, no longer does."""
    while True:
        try:
            return socket.create_server((pod["status"]["podIP"], PORT))
        except OSError:
            assert time.monotonic() < until_s


def test_a_rank_that_is_killed_costs_no_write_to_the_cluster(running):
    pods = set(running.placed())
    running.writes()
    running.kill(running.rank(1))
    running.trains(attempt=2)
    assert running.writes() == []
    assert set(running.placed(2)) == pods


def test_watches_that_break_are_resumed_and_only_a_version_that_is_gone_costs_a_list(running):
    lists = running.server.control("counts")["list pods"]
    for _ in range(3):
        before = running.watches()
        running.server.control("drop")
        wait_for("another watch", lambda before=before: running.watches() > before)
    assert running.server.control("counts")["list pods"] == lists
    running.server.control("faults", watch_s=0.5, doubled=True, shuffled=True)
    running.server.control("compact")
    running.server.control("drop")
    running.trains(more=30)
    running.server.control("faults", watch_s=0.0, doubled=False, shuffled=False)
    assert running.server.control("counts")["list pods"] - lists <= 2
    assert not running.events("node-lost")
    pod = other_than_first(running)
    running.server.control("kill-pod", pod=pod)
    running.trains(attempt=2)


def test_a_killed_pod_is_replaced_by_the_spare_and_its_owner_makes_another(running):
    spare = running.spare()
    running.writes()
    pod = other_than_first(running)
    running.server.control("kill-pod", pod=pod)
    running.trains(attempt=2)
    assert spare in running.placed(2)
    assert pod not in running.placed(2)
    lost = running.waits_for("node-lost")
    # Its status, or its port where that is asked before the status comes.
    reasons = ("killed (137, SIGKILL)", "its agent is gone, and the agent's port refuses connections")
    assert any(reason in lost["reason"] for reason in reasons)
    assert len(running.writes()) <= 5


def test_a_drained_node_moves_its_worker_before_its_pod_is_gone(running):
    pod = other_than_first(running)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    assert (
        running.server.client.post(f"/api/v1/namespaces/default/pods/{pod}/eviction", json=body).status_code
        == 201
    )
    running.trains(attempt=2)
    assert pod not in running.placed(2)
    assert "it was evicted (a drain of its node, or a tool)" in running.waits_for("node-lost")["reason"]


def test_a_controller_that_is_killed_goes_on_from_its_journal(running):
    ranks = running.ranks()
    running.server.control("kill-pod", pod=running.controller())
    running.trains(more=20)
    running.waits_for("controller-resumed")
    assert running.ranks() == ranks
    running.kill(running.rank(1))
    running.trains(attempt=2)
    starts(running, 2)


def test_a_server_that_is_away_stops_nothing_and_recovery_goes_on_without_it(running):
    running.server.control("faults", away=True)
    running.trains(more=20)
    running.kill(running.rank(1))
    running.trains(attempt=2)
    running.server.control("faults", away=False)
    running.trains(attempt=2, more=20)
    assert len(running.pods()) == PODS
    assert not running.events("node-lost")


def test_a_pod_that_is_killed_while_the_server_is_away_is_replaced_at_once(running):
    """Its agent's connection is closed and its port refuses: that needs no API server."""
    spare = running.spare()
    pod = other_than_first(running)
    running.server.control("faults", away=True)
    running.server.control("kill-pod", pod=pod)
    running.trains(attempt=2)
    assert spare in running.placed(2)
    lost = running.waits_for("node-lost")
    assert "its agent is gone, and the agent's port refuses connections" in lost["reason"]
    running.server.control("faults", away=False)
    wait_for(lambda: f"{PODS} pods:\n{running.said()}", lambda: len(running.pods()) == PODS, LONG_S)
    assert len(running.events("node-lost")) == 1


def test_a_pod_of_a_frozen_node_is_removed_by_force_once_its_kubelet_is_silent_too(running):
    running.writes()
    pod = other_than_first(running)
    node = running.node_of(pod)
    running.server.control("freeze", node=node)
    running.trains(attempt=2)
    assert pod not in running.placed(2)
    wait_for(lambda: f"a pod instead of {pod}:\n{running.said()}", lambda: pod not in running.pods(), LONG_S)
    wait_for(lambda: f"{PODS} pods:\n{running.said()}", lambda: len(running.pods()) == PODS, LONG_S)
    assert 1 <= len(running.writes()) <= 5
    running.server.control("thaw", node=node)


def test_a_controller_whose_pod_is_lost_continues_from_the_copy_of_an_agent(running):
    running.kill(running.rank(1))
    running.trains(attempt=2)
    ranks = running.ranks(2)
    lose_controller(running)
    running.waits_for("controller-resumed")
    assert running.has_said("restoring")
    running.trains(attempt=2, more=20)
    assert running.ranks(2) == ranks
    running.kill(running.rank(1, 2))
    running.trains(attempt=3)
    starts(running, 3)


def test_a_controller_that_cannot_listen_neither_begins_the_job_again_nor_gives_up(running):
    running.kill(running.rank(1))
    running.trains(attempt=2)
    ranks = running.ranks(2)
    (controller,) = running.pods("controller").values()
    failed = "the controller ends, to try again after its restart: the controller cannot listen at"
    running.server.control("faults", away=True)  # no kubelet starts a container until the port is taken
    running.server.control("kill-pod", pod=controller["metadata"]["name"])
    with listening_instead(controller, time.monotonic() + LONG_S):
        running.server.control("faults", away=False)
        lose_controller(running)
        wait_for(lambda: f"a failed start:\n{running.said()}", lambda: running.has_said(failed), LONG_S)
    running.waits_for("controller-resumed")
    running.trains(attempt=2, more=20)
    assert running.ranks(2) == ranks


def test_a_device_that_its_kubelet_reports_costs_its_node_once_the_training_fails_too(running):
    spare = running.spare()
    pod = other_than_first(running)
    node, path = running.node_of(pod), f"/api/v1/namespaces/default/pods/{pod}"
    (status,) = running.server.get(path)["status"]["containerStatuses"]
    health = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-7", "health": "Unhealthy"}]}]
    sick = {**status, "allocatedResourcesStatus": health}
    running.server.merge(f"{path}/status", {"status": {"containerStatuses": [sick]}})
    wait_for(lambda: f"the report:\n{running.said()}", lambda: running.has_said("GPU-7"), LONG_S)
    running.trains(more=20)  # a report alone ends nothing
    assert not running.events("device-faulted")
    running.kill(running.rank(1))
    running.trains(attempt=2)
    assert spare in running.placed(2) and pod not in running.placed(2)
    assert running.waits_for("device-faulted")["device"] == "nvidia.com/gpu GPU-7"
    taints = wait_for(
        f"a taint of {node}",
        lambda: running.server.get(f"/api/v1/nodes/{node}")["spec"].get("taints"),
        LONG_S,
    )
    assert [one["key"] for one in taints] == ["holdfast.dev/isolated"]


def test_a_tainted_device_of_a_pod_is_reported_and_stops_nothing(running):
    pod = other_than_first(running)
    api, used = "resource.k8s.io/v1", {"driver": "gpu.example.com", "pool": "n", "device": "gpu-3"}
    running.server.create({"apiVersion": api, "kind": "ResourceClaim", "metadata": {"name": "c"}})
    by = {"resource": "pods", "name": pod, "uid": running.pods()[pod]["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [used]}}, "reservedFor": [by]}
    running.server.merge(f"/apis/{api}/namespaces/default/resourceclaims/c/status", {"status": status})
    taint = {"key": "gpu.example.com/unhealthy", "value": "xid-79", "effect": "None"}
    spec = {
        "driver": "gpu.example.com",
        "pool": {"name": "n"},
        "devices": [{"name": "gpu-3", "taints": [taint]}],
    }
    one = {"apiVersion": api, "kind": "ResourceSlice", "metadata": {"name": "n"}, "spec": spec}
    assert running.server.client.post(f"/apis/{api}/resourceslices", json=one).status_code == 201
    said = "gpu.example.com gpu-3 (taint gpu.example.com/unhealthy=xid-79:None)"
    wait_for(lambda: f"{said} in:\n{running.said()}", lambda: running.has_said(said), LONG_S)
    running.trains(more=5)


def test_a_detached_job_goes_on_and_attach_follows_it_to_its_end(running):
    """The last test of the job that the tests above share: it ends here."""
    run = running.start("attach", "t")
    run.prints("step 3 ", LONG_S)
    elsewhere = running.start(
        "attach", "t", "--state-dir", running.path / "another"
    )  # from a machine that knows nothing of it
    found = "following job t in namespace default"
    wait_for(lambda: f"{found}: {elsewhere.err}", lambda: found in elsewhere.err, LONG_S)
    running.ends_with_success(run)
    assert elsewhere.code(LONG_S) == 0, elsewhere.err
    assert "step " in elsewhere.out
    running.has_ended_as("Complete")


@pytest.mark.parametrize("job", [{"node_grace_s": 8.0}], indirect=True)
def test_a_frozen_node_is_out_of_service_until_it_is_back(job):
    """On two proofs: the agent is silent, and the cluster no longer hears the node."""
    run = job.submit_and_train(workers=2)
    pod = other_than_first(job)
    node = job.node_of(pod)
    job.server.control("freeze", node=node)

    def is_out():
        taints = job.server.get(f"/api/v1/nodes/{node}")["spec"].get("taints", ())
        return "node.kubernetes.io/out-of-service" in [one["key"] for one in taints]

    wait_for(lambda: f"the taint of {node}:\n{job.said()}", is_out, LONG_S)
    job.trains(attempt=2)
    assert pod not in job.placed(2)
    job.server.control("thaw", node=node)
    wait_for(lambda: f"{node} without the taint:\n{job.said()}", lambda: not is_out(), LONG_S)
    job.ends_with_success(run)


def test_the_code_of_the_training_is_that_of_run_and_the_job_has_failed(job):
    run = job.submit(restarts=(), workers=2, spares=0)
    job.given_to()
    job.trains().kill(job.rank(1))
    assert run.code(LONG_S) == 1, job.said()
    job.has_ended_as("Failed")
    assert not job.pods()


def test_an_annotation_that_changes_while_the_job_runs_changes_its_limits(job):
    run = job.submit_and_train(restarts=(), workers=2, spares=0)
    path = "/apis/batch/v1/namespaces/default/jobs/t"
    job.server.merge(path, {"metadata": {"annotations": {"fault-tolerance/job-retry-num": "500"}}})
    wait_for(lambda: f"the refusal:\n{job.said()}", lambda: "job-retry-num is refused" in job.said(), LONG_S)
    wanted = {"fault-tolerance/job-retry-num": "4", "fault-tolerance/job-unconditional-retry": "true"}
    job.server.merge(path, {"metadata": {"annotations": wanted}})
    changed = job.waits_for("policy-changed")
    assert changed["fields"] == {"max_restarts": 4, "unconditional_restart": True}
    job.server.control("kill-pod", pod=job.controller())
    job.waits_for("controller-resumed")
    job.kill(job.rank(1))
    job.trains(attempt=2)
    assert len(job.events("policy-changed")) == 1
    job.ends_with_success(run)
    assert "step 3 " in run.out


def test_what_keeps_a_pod_from_starting_is_reported_in_one_line(tmp_path, cache_home):
    job = KubernetesJob(tmp_path, cache_home, nodes=3)
    try:
        job.server.control("bad-image", image="no-such-image")
        job.image = "no-such-image"
        run = job.submit("--gpus", 8, workers=4)
        run.says("its image cannot be pulled; check the image's name, and imagePullSecrets", LONG_S)
        run.says("is not scheduled on a node: 0/3 nodes are available", LONG_S)
        run.signal(signal.SIGINT)
        assert run.code(LONG_S) == 130
        wait_for("the job's objects to be gone", lambda: job.owner() is None and not job.pods("controller"))
    finally:
        job.end()


def test_a_job_that_is_deleted_ends_and_leaves_nothing(job):
    run = job.submit_and_train(workers=2, spares=0)
    job.server.delete("/apis/batch/v1/namespaces/default/jobs/t")
    assert run.code(LONG_S) == 143, job.said()
    wait_for(lambda: f"no pod: {job.pods()}", lambda: not job.pods() and not job.pods("controller"), LONG_S)
    job.nothing_left()


def test_a_record_that_is_lost_everywhere_begins_the_job_again(job):
    """The pods of the workers are lost with it, and their copies."""
    run = job.submit_and_train(workers=2, spares=0)
    workers = list(job.pods())
    lose_controller(job)
    for pod in workers:
        job.server.control("kill-pod", pod=pod)
    wait_for(lambda: f"another start:\n{job.said()}", lambda: len(job.notes("given-0")) > 1, LONG_S)
    job.ends_with_success(run)


def test_a_record_on_a_claim_survives_the_loss_of_the_controllers_pod(job):
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "record"}}
    job.server.create({**claim, "spec": {"accessModes": ["ReadWriteOnce"]}})
    run = job.submit("--state-claim", "record", workers=2, spares=0)
    ranks = (job.given_to(), job.ranks())[1]
    job.trains()
    lose_controller(job)
    job.waits_for("controller-resumed")
    job.trains(more=10)
    assert job.ranks() == ranks
    job.kill(job.rank(1))
    job.trains(attempt=2)
    job.ends_with_success(run)

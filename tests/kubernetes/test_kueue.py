"""Kueue's topology-aware scheduling, which gives pods their nodes and swaps one that has failed: Holdfast leaves both to it."""

import pytest

from kubernetes.apiserver.controllers.kueue import GATE, QUEUE, TOPOLOGY
from kubernetes.kubectl import apply
from kubernetes.whole_job import PODS, KubernetesJob
from kubernetes.wrap.test_wrapped_jobs import manifests, wrapped
from many.whole_job import LONG_S
from run.place import wait_for

pytestmark = pytest.mark.timeout(280)


def test_a_node_that_kueue_swaps_under_a_pod_is_a_lost_pod(tmp_path, cache_home):
    job = KubernetesJob(tmp_path, cache_home, node_grace_s=10.0)
    try:
        (given,) = manifests(job, {QUEUE: "q"})
        given["spec"]["template"]["metadata"] = {"annotations": {TOPOLOGY: "kubernetes.io/hostname"}}
        job.server.control("quota", pods=PODS)
        apply(job.server, wrapped(job, given=[given]))
        job.given_to()
        job.trains()
        assert job.owner()["spec"]["template"]["spec"]["schedulingGates"] == [GATE]
        nodes = {pod: job.node_of(pod) for pod in job.pods()}
        assert len(set(nodes.values())) == PODS
        controller = next(iter(job.pods("controller").values()))["spec"]["nodeName"]
        pod = next(pod for pod in job.placed() if nodes[pod] != controller)
        job.server.control("freeze", node=nodes[pod])
        job.trains(attempt=2)
        wait_for(lambda: f"a swap: {job.said()}", lambda: job.server.control("swaps"), LONG_S)
        ((before, after),) = job.server.control("swaps")
        assert before == nodes[pod] and after not in nodes.values()
        wait_for(
            lambda: f"{PODS} pods: {job.pods()}",
            lambda: (
                sorted(one["spec"].get("nodeName", "") for one in job.pods().values())
                == sorted({*nodes.values(), after} - {before})
            ),
            LONG_S,
        )
        assert {one["node"] for one in job.events("node-isolated")} <= {pod}  # no healthy one
        job.server.control("thaw", node=before)
        job.go()
        wait_for(lambda: f"the end of {job.owner()}", lambda: job.owner_says() == "succeeded", LONG_S)
        assert job.server.control("failed") == []
    finally:
        job.end()

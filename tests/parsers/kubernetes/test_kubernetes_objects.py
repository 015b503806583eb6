"""Objects of the Kubernetes API as servers send them, read for what Holdfast uses."""

import json

import pytest

from holdfast.core.kubernetes.words import end_of, fault_of, wait_of
from holdfast.model.kubernetes import RENEW
from holdfast.parsers.kubernetes.objects import (
    NotRead,
    event_of,
    node_of,
    owner_of,
    page,
    pod_of,
    status_body,
    version_of,
    watch_line,
)


def raw_pod(status=None, meta=None, spec=None):
    meta = {"name": "t-2-x7k2p", "uid": "u1", "resourceVersion": "4711", **(meta or {})}
    one = {
        "metadata": meta,
        "spec": {"nodeName": "gpu-3", "containers": [{"name": "training"}], **(spec or {})},
    }
    return json.dumps(one | {"status": status or {"phase": "Running"}}).encode()


def container(state, name="training", **more):
    return {"name": name, "restartCount": 0, "state": state, **more}


def test_a_running_pod():
    meta = {"annotations": {"batch.kubernetes.io/job-completion-index": "2"}}
    status = {
        "phase": "Running",
        "containerStatuses": [container({"running": {"startedAt": "2026-01-01T00:00:00Z"}})],
    }
    pod = pod_of(raw_pod(status, meta))
    assert (pod.name, pod.uid, pod.version, pod.node, pod.index) == ("t-2-x7k2p", "u1", "4711", "gpu-3", 2)
    assert pod.running and not pod.is_over and wait_of(pod) == ""


RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [RENEW]}}


@pytest.mark.parametrize(
    ("policy", "side", "end", "broken"),
    [
        ("Never", None, {"terminated": {"exitCode": 3}}, "side has ended with exit code 3"),
        ("Never", None, {"terminated": {"exitCode": 0}}, ""),
        ("Never", None, {"running": {}}, ""),
        ("Never", "Always", {"terminated": {"exitCode": 3}}, ""),  # its kubelet starts it again
        ("OnFailure", None, {"terminated": {"exitCode": 3}}, ""),
        ("OnFailure", "Never", {"terminated": {"exitCode": 3}}, "side has ended with exit code 3"),
    ],
)
def test_a_container_beside_the_training_that_has_failed_for_good(policy, side, end, broken):
    two = [{"name": "training"}, {"name": "side", **({"restartPolicy": side} if side else {})}]
    spec = {"restartPolicy": policy, "containers": two}
    status = {"phase": "Running", "containerStatuses": [container({"running": {}}), container(end, "side")]}
    pod = pod_of(raw_pod(status, spec=spec), "training")
    assert (pod.broken, pod.is_renewable) == (broken, False)


@pytest.mark.parametrize(
    ("rules", "renews"),
    [
        ([RULE], True),
        ([{**RULE, "action": "Restart"}], False),
        ([{**RULE, "exitCodes": {"operator": "NotIn", "values": [RENEW]}}], False),
        ([{"action": "RestartAllContainers"}], False),
        ([], False),
    ],
)
def test_a_pod_with_the_rule_restarts_all_its_containers(rules, renews):
    two = [{"name": "side"}, {"name": "training", "restartPolicy": "Never", "restartPolicyRules": rules}]
    assert pod_of(raw_pod(spec={"containers": two}), "training").is_renewable is renews
    assert pod_of(raw_pod(spec={"containers": two}), "side").is_renewable is False


def test_the_container_of_the_training_is_found_by_its_name():
    states = [container({"terminated": {"exitCode": 0}}, "sidecar"), container({"running": {}})]
    pod = pod_of(raw_pod({"phase": "Running", "containerStatuses": states}), "training")
    assert pod.running and pod.ended is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {
                "phase": "Failed",
                "containerStatuses": [container({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})],
            },
            "pod t-2-x7k2p on gpu-3 has ended: its container was killed because it exceeded its memory limit (OOMKilled); raise its memory "
            "limit or lower its use",
        ),
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "The node was low on resource: ephemeral-storage.",
            },
            "its kubelet evicted it: The node was low on resource: ephemeral-storage.",
        ),
        (
            {
                "phase": "Failed",
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                ],
                "containerStatuses": [container({"terminated": {"exitCode": 143, "reason": "Error"}})],
            },
            "the scheduler preempted it for a pod of higher priority (PreemptionByScheduler); its container was terminated (143, "
            "SIGTERM)",
        ),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "a device that it needs is missing"),
        (
            {
                "phase": "Failed",
                "containerStatuses": [container({"terminated": {"exitCode": 1, "reason": "StartError"}})],
            },
            "its container ended with exit code 1 (StartError)",
        ),
    ],
)
def test_the_end_of_a_pod_is_said_in_one_line(status, words):
    assert words in end_of(pod_of(raw_pod(status)))


@pytest.mark.parametrize(
    ("status", "spec", "words"),
    [
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    container(
                        {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}
                    )
                ],
            },
            {},
            "its image cannot be pulled; check the image's name, and imagePullSecrets",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/9 nodes are available: 9 Insufficient nvidia.com/gpu.",
                    }
                ],
            },
            {"nodeName": ""},
            "is not scheduled on a node: 0/9 nodes are available: 9 Insufficient nvidia.com/gpu.",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [container({"waiting": {"reason": "ErrImagePull"}}, "agent")],
                "containerStatuses": [container({"waiting": {"reason": "PodInitializing"}})],
            },
            {},
            "its image cannot be pulled",
        ),
    ],
)
def test_why_a_pod_does_not_start(status, spec, words):
    assert words in wait_of(pod_of(raw_pod(status, spec=spec)))


def test_a_pod_that_is_only_starting_is_no_trouble():
    status = {
        "phase": "Pending",
        "containerStatuses": [container({"waiting": {"reason": "ContainerCreating"}})],
    }
    assert wait_of(pod_of(raw_pod(status))) == ""


def test_devices_that_are_not_healthy_are_named():
    health = [
        {
            "name": "nvidia.com/gpu",
            "resources": [
                {"resourceID": "GPU-1", "health": "Unhealthy"},
                {"resourceID": "GPU-2", "health": "Healthy"},
            ],
        }
    ]
    status = {
        "phase": "Running",
        "containerStatuses": [container({"running": {}}, allocatedResourcesStatus=health)],
    }
    assert pod_of(raw_pod(status)).sick_devices == ("nvidia.com/gpu GPU-1",)


def test_nodes():
    raw = {
        "metadata": {"name": "gpu-1", "resourceVersion": "9"},
        "spec": {
            "unschedulable": True,
            "taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}],
        },
        "status": {
            "conditions": [
                {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
                {"type": "MemoryPressure", "status": "False"},
                {"type": "KernelDeadlock", "status": "True"},
            ]
        },
    }
    node = node_of(json.dumps(raw).encode())
    assert (node.ready, node.cordoned, node.problems) == ("Unknown", True, ("KernelDeadlock",))
    assert node.taints == (("node.kubernetes.io/unreachable", "NoExecute"),)
    assert fault_of(node) == "gpu-1 no longer reports to the cluster (Ready Unknown)"


@pytest.mark.parametrize(
    ("kind", "spec", "status", "wanted"),
    [
        ("Job", {"suspend": True}, {}, (True, "", "")),
        (
            "Job",
            {},
            {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]},
            (False, "failed", "DeadlineExceeded"),
        ),
        (
            "JobSet",
            {},
            {"conditions": [{"type": "Completed", "status": "True", "reason": "x"}]},
            (False, "succeeded", "x"),
        ),
        ("TrainJob", {}, {"conditions": [{"type": "Complete", "status": "False"}]}, (False, "", "")),
        ("Job", {}, {"state": {"phase": "Aborted"}}, (False, "failed", "Aborted")),
        ("Job", {}, {"state": {"phase": "Running"}}, (False, "", "")),
    ],
)
def test_owners(kind, spec, status, wanted):
    raw = {"kind": kind, "metadata": {"name": "t", "uid": "u"}, "spec": spec, "status": status}
    owner = owner_of(json.dumps(raw).encode())
    assert (owner.suspended, owner.over, owner.why) == wanted


def test_watch_lines_pages_and_statuses():
    line = watch_line(b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"88"}}}')
    assert (line.type, version_of(bytes(line.object))) == ("BOOKMARK", "88")
    found = page(b'{"metadata":{"resourceVersion":"5","continue":"abc"},"items":[{"metadata":{"name":"a"}}]}')
    assert (found.version, found.more, len(found.items)) == ("5", "abc", 1)
    assert status_body(b'{"code":410,"reason":"Expired","message":"too old"}').code == 410
    assert status_body(b"<html>") == status_body(b"{}")
    event = event_of(
        b'{"metadata":{},"involvedObject":{"name":"t-0"},"reason":"FailedMount","message":"m","type":"Warning"}'
    )
    assert (event.about, event.reason, event.is_warning) == ("t-0", "FailedMount", True)


@pytest.mark.parametrize("read", [pod_of, node_of, owner_of, event_of, page, watch_line])
@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"metadata": 3}', b"\xff\xfe"])
def test_what_is_none_is_refused(read, raw):
    with pytest.raises(NotRead):
        read(raw)

"""The engine's own watching, writing and proving, against the API server of these tests."""

import queue
import threading

import pytest

from holdfast.engines.kubernetes.connection import NoCluster, RequestFailed, ServerAway, connect
from holdfast.engines.kubernetes.lease import Lease, LeaseTaken
from holdfast.engines.kubernetes.probing import Probing
from holdfast.engines.kubernetes.rights import EVICT_PODS, NODES, allowed
from holdfast.engines.kubernetes.watching import Watching
from holdfast.engines.kubernetes.writing import Writing
from holdfast.model.kubernetes import DeletePod, Evict, RestoreNode, TaintNode, TakeOutOfService
from holdfast.parsers.kubernetes.objects import pod_of

PODS = "/api/v1/namespaces/default/pods"
WAIT_S = 100.0


def pod(name, **labels):
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.fixture
def connection(server):
    one = connect({"KUBECONFIG": str(server.kubeconfig)})
    yield one
    one.close()


class Queue(queue.SimpleQueue):
    """What a thread has sent; `of`: who sends."""

    of = None


@pytest.fixture
def seen(connection):
    """What a watch of the pods labelled a=b has seen; `of`: the watch."""
    found = Queue()
    one = Watching(connection, PODS, {"labelSelector": "a=b"}, lambda watching, seen: found.put(seen), "pods")
    found.of = one
    one.start()
    yield found
    one.stop()


def next_of(seen, kind):
    while True:
        one = seen.get(timeout=WAIT_S)
        if one.kind == kind:
            return [pod_of(raw).name for raw in one.objects]


def test_one_list_then_changes_through_broken_connections(server, seen):
    assert next_of(seen, "list") == []
    for number in range(4):
        server.create(pod(f"p{number}", a="b"))
        while next_of(seen, "changed") != [f"p{number}"]:  # the scheduler says of the others that they wait
            pass
        server.control("drop")
        # As the server counts them: a first try on a connection that was cut with the watch never arrives there.
        server.wait_for(lambda number=number: server.control("counts")["watch pods"] >= number + 2)
    server.delete(f"{PODS}/p0")
    assert next_of(seen, "gone") == ["p0"]
    assert seen.of.lists == 1


def test_a_version_that_is_gone_costs_one_more_list(server, seen):
    next_of(seen, "list")
    server.create(pod("p0", a="b"))
    next_of(seen, "changed")
    server.control("faults", rules=[{"code": 410, "count": 1, "verb": "watch", "plural": "pods"}])
    server.control("drop")
    assert next_of(seen, "list") == ["p0"]
    assert seen.of.lists == 2


def test_a_server_that_is_away_is_reported_once_and_again_when_it_is_back(server, seen):
    next_of(seen, "list")
    server.control("faults", away=True)
    assert next_of(seen, "away") == []
    server.control("faults", away=False)
    assert next_of(seen, "back") == []
    assert seen.of.lists == 1


@pytest.fixture
def writing(server, connection):
    found = Queue()
    one = Writing(connection, "default", found.put)
    one.done = found
    one.start()
    yield one
    one.stop()


def test_what_is_written_is_an_eviction_of_this_pod_and_no_other_of_its_name(server, writing):
    made = server.create(pod("p0"))
    writing.put(Evict(pod="p0", uid="another"))
    assert writing.done.get(timeout=WAIT_S).why == ""
    assert server.get(f"{PODS}/p0")
    writing.put(Evict(pod="p0", uid=made["metadata"]["uid"]))
    assert writing.done.get(timeout=WAIT_S).why == ""
    assert server.get(f"{PODS}/p0") is None
    writing.put(Evict(pod="p0", uid=made["metadata"]["uid"]))  # again: it is gone, as was wanted
    assert writing.done.get(timeout=WAIT_S).why == ""


def test_without_the_right_to_evict_the_pod_is_deleted(server, writing):
    server.control("deny", denied=[["create", "pods/eviction"]])
    made = server.create(pod("p0"))
    writing.put(Evict(pod="p0", uid=made["metadata"]["uid"], grace_s=0))
    assert writing.done.get(timeout=WAIT_S).why == ""
    assert server.get(f"{PODS}/p0") is None


def test_errors_that_pass_are_waited_out_and_refusals_are_reported(server, writing):
    made = server.create(pod("p0"))
    server.control(
        "faults",
        rules=[
            {"code": 409, "count": 1, "verb": "delete"},
            {"code": 500, "count": 2, "verb": "delete"},
            {"code": 0, "count": 1, "verb": "delete"},
        ],
    )
    writing.put(DeletePod(pod="p0", uid=made["metadata"]["uid"]))
    assert writing.done.get(timeout=WAIT_S).why == ""
    assert server.get(f"{PODS}/p0") is None
    server.control("deny", denied=[["*", "nodes"]])
    writing.put(TaintNode(node="gpu-1", reason="x"))
    done = writing.done.get(timeout=WAIT_S)
    assert done.is_forbidden and "cannot get resource" in done.why


def test_a_taint_is_added_to_the_others_and_only_once(server, writing):
    others = [{"key": "a", "effect": "NoSchedule"}]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}, "spec": {"taints": others}}
    assert server.client.post("/api/v1/nodes", json=node).status_code == 201
    for _ in range(2):
        writing.put(TaintNode(node="gpu-1", reason="x"))
        assert writing.done.get(timeout=WAIT_S).why == ""
    keys = [one["key"] for one in server.get("/api/v1/nodes/gpu-1")["spec"]["taints"]]
    assert keys == ["a", "holdfast.dev/isolated"]


def test_a_node_is_taken_out_of_service_unless_it_is_ready_and_restored_once_it_is(server, writing):
    path, others = "/api/v1/nodes/gpu-1", [{"key": "a", "effect": "NoSchedule"}]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}, "spec": {"taints": others}}
    assert server.client.post("/api/v1/nodes", json=node).status_code == 201

    def done(act, ready):
        condition = {"type": "Ready", "status": ready}
        server.merge(f"{path}/status", {"status": {"conditions": [condition]}})
        writing.put(act)
        assert writing.done.get(timeout=WAIT_S).why == ""
        found = server.get(path)
        kept = [one for one in found["spec"]["taints"] if "unreachable" not in one["key"]]
        return [one["key"] for one in kept], found["metadata"].get("annotations", {})

    take, restore = TakeOutOfService(node="gpu-1", pod="p0"), RestoreNode(node="gpu-1")
    assert done(take, "True") == (["a"], {})  # it has recovered in the meantime
    taken = (["a", "node.kubernetes.io/out-of-service"], {"holdfast.dev/out-of-service": "true"})
    for ready, act in (("Unknown", take), ("Unknown", take), ("Unknown", restore)):
        assert done(act, ready) == taken
    assert done(restore, "True") == (["a"], {})


@pytest.mark.parametrize(
    ("rules", "answered"),
    [
        ([{"code": 500, "count": 1, "plural": "pods/log"}], False),
        ([{"code": 500, "count": 1, "plural": "pods/log"}, {"code": 500, "count": 1, "verb": "get"}], None),
        ([{"code": 403, "count": 1, "plural": "pods/log"}], None),
        ([], None),  # the container has not started: its kubelet was not asked
    ],
)
def test_a_kubelet_is_silent_only_where_the_server_answers(server, connection, rules, answered):
    made = server.create(pod("p0"))
    found = Queue()
    probing = Probing(connection, "default", found.put)
    for _ in range(2):  # twice at most: a server that pauses for seconds is taken for silent or away
        server.control("faults", rules=rules)
        probing.probe("p0", made["metadata"]["uid"], "c")
        last = found.get(timeout=WAIT_S).answered
        if last is answered:
            break
    assert last is answered
    probing.stop()


def test_a_lease_has_one_holder_and_passes_on_when_it_is_let_go(server, connection):
    uid = server.create(pod("pod-a"))["metadata"]["uid"]
    first = Lease(connection, "default", "t-holdfast", f"pod-a.{uid}/10")
    assert first.take(5.0)
    with pytest.raises(LeaseTaken, match=f"pod-a.{uid}/10 is the controller of this job"):
        Lease(connection, "default", "t-holdfast", "pod-b.2/10").take(0.5)
    again = Lease(
        connection, "default", "t-holdfast", f"pod-a.{uid}/11"
    )  # the same pod, its container started again
    again.take(5.0)
    again.release()
    second = Lease(connection, "default", "t-holdfast", "pod-b.2/10")
    assert not second.take(5.0)
    second.release()
    first.release()


@pytest.mark.parametrize("end", ["gone", "another pod of its name", "over"])
def test_a_lease_whose_holders_pod_has_ended_is_taken_at_once(server, connection, end):
    uid = server.create(pod("pod-a"))["metadata"]["uid"]
    first = Lease(connection, "default", "t-holdfast", f"pod-a.{uid}/10")
    assert first.take(5.0)
    first.stop()
    if end == "over":
        server.merge(f"{PODS}/pod-a/status", {"status": {"phase": "Failed"}})
    else:
        server.delete(f"{PODS}/pod-a", gracePeriodSeconds=0)
    if end == "another pod of its name":
        server.create(pod("pod-a"))
    second = Lease(connection, "default", "t-holdfast", "pod-b.2/10")
    assert not second.take(5.0)  # the Lease itself lasts for 15 s
    second.release()


def test_a_lease_that_was_created_with_the_job_has_a_first_holder(server, connection):
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "t-holdfast"}}
    server.create({**lease, "spec": {"leaseDurationSeconds": 1}})
    first = Lease(connection, "default", "t-holdfast", "pod-a.1/10")
    assert first.take(5.0)
    first.release()
    second = Lease(connection, "default", "t-holdfast", "pod-b.2/10")
    assert not second.take(5.0)
    second.release()


def test_rights_are_asked_for_before_they_are_needed(server, connection):
    server.control("deny", denied=[["patch", "nodes"]])
    patch = NODES[-1]
    assert allowed(connection, "default", (EVICT_PODS, patch)) == {EVICT_PODS: True, patch: False}


def test_no_configuration_and_a_wrong_one_say_what_to_do(tmp_path):
    for env in ({"KUBECONFIG": str(tmp_path / "none")}, {"KUBECONFIG": str(tmp_path)}):
        with pytest.raises(NoCluster, match="Set KUBECONFIG to a file that kubectl can use"):
            connect(env)
    broken = tmp_path / "broken"
    broken.write_text("clusters: [")
    with pytest.raises(NoCluster):
        connect({"KUBECONFIG": str(broken)})


def test_a_server_that_is_not_there_is_away_and_no_error_of_ours(tmp_path, server, connection):
    server.control("faults", away=True)
    with pytest.raises(ServerAway):
        connection.request("GET", PODS)
    server.control("faults", away=False)
    with pytest.raises(RequestFailed) as caught:
        connection.request("GET", f"{PODS}/none")
    assert (caught.value.code, caught.value.reason) == (404, "NotFound")
    assert threading.active_count() < 50

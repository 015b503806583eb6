"""What follows from what the cluster says of a job's pods: news for the controller, and what is written."""

import pytest
from msgspec.structs import replace

from holdfast.core.kubernetes.known import Rules
from holdfast.core.kubernetes.pods import LANDED_MAX, PodBook
from holdfast.model.kubernetes import (
    JOB_FAILED,
    ClusterEvent,
    ContainerEnd,
    DeletePod,
    Evict,
    NodeState,
    OwnerState,
    PodState,
    ProbePod,
    TaintNode,
)
from holdfast.model.nodes.workers import (
    DevicesSick,
    EndAsked,
    EngineNote,
    JobGoesOn,
    NodeAlive,
    NodeDown,
    NodeReady,
    NoMoreNodes,
    SetAside,
)


def pod(name="t-0-a", **more):
    given = {
        "uid": f"uid-{name}",
        "node": "gpu-1",
        "phase": "Running",
        "running": True,
        "version": "10",
        **more,
    }
    return PodState(name=name, **given)


def ended(name="t-0-a", code=137, **more):
    return pod(name, phase="Failed", running=False, ended=ContainerEnd(code=code, **more), version="20")


OWNER = OwnerState(kind="Job", name="t", uid="u")


@pytest.fixture
def book():
    one = PodBook(Rules())
    one.saw_owner(OWNER, 0.0)
    one.turn(0.0)
    return one


def turns(book, until_s, step_s=0.5, from_s=0.0):
    """All news and acts until then."""
    news, acts = [], []
    at_s = from_s
    while at_s <= until_s:
        more, done = book.turn(at_s)
        news, acts = news + list(more), acts + list(done)
        at_s += step_s
    return news, acts


def test_a_pod_is_ready_once_it_has_a_node_and_once_only(book):
    book.listed([pod(node="", phase="Pending", running=False)], 0.0)
    assert book.turn(0.0) == ([], [])
    book.saw_pod(pod(version="11"), 1.0)
    book.saw_pod(pod(version="12"), 1.0)
    book.saw_pod(pod(version="12"), 1.0)
    assert book.turn(1.0) == ([NodeReady(node="t-0-a")], [])
    assert book.nodes == ("t-0-a",)


def test_a_pod_whose_container_has_ended_is_down_at_once_and_says_why(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.saw_pod(ended(reason="OOMKilled"), 1.0)
    (down,), acts = book.turn(1.0)
    assert (
        isinstance(down, NodeDown) and "OOMKilled" in down.reason and "raise its memory limit" in down.reason
    )
    assert acts == []  # a Job makes another while the ended one is there


def test_volcano_makes_another_only_once_the_ended_pod_is_gone():
    book = PodBook(Rules(remakes_ended=False))
    book.listed([pod("t-worker-0")], 0.0)
    book.turn(0.0)
    book.saw_pod(ended("t-worker-0"), 1.0)
    assert book.turn(1.0)[1] == [DeletePod(pod="t-worker-0", uid="uid-t-worker-0")]
    book.pod_gone("t-worker-0", "uid-t-worker-0", 2.0)
    book.saw_pod(pod("t-worker-0", uid="uid-2", version="30"), 3.0)
    assert book.turn(3.0)[0] == [NodeReady(node="t-worker-0")]


@pytest.mark.parametrize("code", [0, JOB_FAILED])
def test_a_pod_by_which_its_owner_learns_the_end_of_the_job_is_not_deleted(code):
    book = PodBook(Rules(remakes_ended=False))
    book.listed([pod("t-worker-0")], 0.0)
    book.turn(0.0)
    book.saw_pod(ended("t-worker-0", code=code), 1.0)
    assert turns(book, 60.0, from_s=1.0)[1] == []


def test_late_and_doubled_events_change_nothing(book):
    book.listed([pod(version="50")], 0.0)
    book.turn(0.0)
    book.saw_pod(pod(version="40", phase="Failed", running=False, ended=ContainerEnd(code=1)), 1.0)
    book.saw_pod(pod(uid="uid-older", version="5"), 1.0)
    book.pod_gone("t-0-a", "uid-older", 1.0)
    assert turns(book, 5.0) == ([], [])
    assert book.nodes == ("t-0-a",)


def test_a_list_ends_what_is_not_in_it(book):
    book.listed([pod(), pod("t-1-b")], 0.0)
    book.turn(0.0)
    book.listed([pod("t-1-b"), pod("t-0-c")], 5.0)
    news, _ = book.turn(5.0)
    assert news == [NodeReady(node="t-0-c"), NodeDown(node="t-0-a", reason="pod t-0-a on gpu-1 is gone")]


def test_one_pod_that_is_removed_is_down_and_the_job_goes_on(book):
    book.listed([pod(), pod("t-1-b")], 0.0)
    book.turn(0.0)
    book.saw_pod(pod(deleting=True, disruption="EvictionByEvictionAPI", version="11"), 1.0)
    book.wonder(1.0)
    news, acts = turns(book, 3.0, from_s=1.0)
    assert [type(one) for one in news] == [NodeDown, JobGoesOn]
    assert "a drain of its node" in news[0].reason
    assert acts == []


@pytest.mark.parametrize(
    ("change", "code", "comes_back"),
    [
        ({"deleting": True}, 143, False),
        ({"suspended": True}, 143, True),
        ({"over": "failed", "why": "BackoffLimitExceeded"}, 1, False),
    ],
)
def test_the_end_of_the_whole_job_is_one_request_and_no_lost_node(book, change, code, comes_back):
    book.listed([pod(), pod("t-1-b")], 0.0)
    book.turn(0.0)
    for name in ("t-0-a", "t-1-b"):
        book.saw_pod(pod(name, deleting=True, grace_s=30, version="11"), 1.0)
    book.saw_owner(replace(OWNER, **change), 1.2)
    news, acts = turns(book, 5.0, from_s=1.3)
    assert [(one.code, one.comes_back, one.finish_s) for one in news if isinstance(one, EndAsked)] == [
        (code, comes_back, 30.0)
    ]
    assert not [one for one in news if isinstance(one, NodeDown)]
    book.more_nodes(2, (), 6.0)
    assert book.turn(6.0)[0] == [NoMoreNodes(reason="the cluster terminates the job")]


def test_a_silent_agent_alone_never_costs_a_pod_its_life(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.ask("t-0-a", 1.0)
    assert book.turn(1.0)[1] == [ProbePod(pod="t-0-a", uid="uid-t-0-a")]
    book.lost("t-0-a", "no message", 12.0)
    acts = []
    for second in range(12, 600):
        _, more = book.turn(float(second))
        acts += more
        for act in more:
            book.probed(act.pod, answered=True, at_s=float(second))
    assert acts and all(isinstance(act, ProbePod) for act in acts)


def test_nor_does_a_server_that_is_away(book):
    book.listed([pod()], 0.0)
    book.lost("t-0-a", "no message", 12.0)
    _, acts = turns(book, 400.0, from_s=12.0)
    assert all(isinstance(act, ProbePod) for act in acts)


def test_a_silent_kubelet_twice_is_the_second_proof(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    for second in (4.0, 9.0):
        book.ask("t-0-a", second)
        book.turn(second)
        book.probed("t-0-a", answered=False, at_s=second)
    assert turns(book, 11.0, from_s=9.0) == ([], [])
    book.lost("t-0-a", "no message", 12.0)
    news, acts = book.turn(12.0)
    assert acts == [Evict(pod="t-0-a", uid="uid-t-0-a", grace_s=0)]
    assert isinstance(news[0], NodeDown) and "nor does its kubelet" in news[0].reason
    assert turns(book, 60.0, from_s=13.0)[1] == []


def test_a_node_that_the_cluster_does_not_hear_is_one_too(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.saw_node(NodeState(name="gpu-1", ready="Unknown"), 10.0)
    book.lost("t-0-a", "no message", 12.0)
    news, acts = book.turn(12.0)
    assert acts == [Evict(pod="t-0-a", uid="uid-t-0-a", grace_s=0)]
    assert any(isinstance(one, EngineNote) and "Ready Unknown" in one.text for one in news)


def test_a_pod_that_came_back_is_no_longer_in_doubt(book):
    book.listed([pod()], 0.0)
    book.lost("t-0-a", "no message", 12.0)
    book.probed("t-0-a", answered=False, at_s=13.0)
    book.returned("t-0-a")
    book.probed("t-0-a", answered=False, at_s=16.0)
    assert not [act for act in turns(book, 60.0, from_s=16.0)[1] if isinstance(act, Evict)]


def test_a_kubelet_that_answers_says_that_the_pod_is_up(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.ask("t-0-a", 4.0)
    book.probed("t-0-a", answered=True, at_s=4.1)
    assert book.turn(4.2)[0] == [NodeAlive(node="t-0-a")]


def test_isolation_with_node_rights_is_a_taint_and_an_eviction():
    book = PodBook(Rules(node_rights=True))
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.isolate("t-0-a", "a lost GPU", 1.0)
    news, acts = turns(book, 20.0, from_s=1.0)
    assert [type(one) for one in news] == [SetAside]
    assert acts == [TaintNode(node="gpu-1", reason="a lost GPU"), Evict(pod="t-0-a", uid="uid-t-0-a")]


def test_isolation_without_node_rights_removes_pods_that_land_there_a_few_times_and_then_says_so(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.isolate("t-0-a", "a lost GPU", 1.0)
    news, acts = turns(book, 20.0, from_s=1.0)
    assert "kubectl cordon gpu-1" in news[0].says
    evicted = len(acts)
    for number in range(LANDED_MAX + 3):
        name = f"t-0-{number}"
        book.saw_pod(pod(name, version=str(100 + number)), 30.0 + number)
        more, acts = book.turn(30.0 + number)
        evicted += len(acts)
        news += more
    assert evicted == 1 + LANDED_MAX
    assert not [one for one in news if isinstance(one, NodeReady)]
    assert sum(1 for one in news if isinstance(one, EngineNote) and "stays unused" in one.text) == 3
    assert book.nodes == ()


def test_missing_pods_are_waited_for_with_the_schedulers_words_each_once(book):
    waits = pod("t-1-b", node="", phase="Pending", running=False, unscheduled="0/2 nodes are available")
    book.listed([pod(), waits], 0.0)
    book.more_nodes(2, (), 0.0)
    news, acts = turns(book, 60.0)
    notes = [one.text for one in news if isinstance(one, EngineNote)]
    assert len(notes) == 2 and all("0/2 nodes are available" in text for text in notes)
    assert not [one for one in news if isinstance(one, NoMoreNodes)]
    assert acts == []


def test_an_unknown_pod_is_down_only_where_the_server_has_none(book):
    """The list may have been stale from which the controller knows its pods."""
    book.ask("t-9-z", 0.0)
    assert book.turn(0.0) == ([], [ProbePod(pod="t-9-z", uid="")])
    book.not_there("t-9-z")
    assert book.turn(0.1)[0] == [NodeDown(node="t-9-z", reason="pod t-9-z is gone")]


def test_warnings_that_say_why_no_pod_comes_are_noted_once_with_what_to_do(book):
    book.listed([pod(), pod("t-1-b", running=False, phase="Pending")], 0.0)
    book.turn(0.0)
    mount = ClusterEvent(about="t-1-b", reason="FailedMount", message="secret not found", is_warning=True)
    quota = ClusterEvent(about="t", reason="FailedCreate", message="exceeded quota: gpus", is_warning=True)
    for at_s in (1.0, 2.0):
        for event in (
            mount,
            quota,
            replace(mount, about="other"),
            replace(mount, about="t-0-a", message="late"),
        ):
            book.saw_event(event, at_s)
    book.saw_event(replace(mount, reason="Unhealthy", message="probe"), 3.0)
    notes = [one.text for one in book.turn(3.0)[0]]
    assert len(notes) == 2
    assert "exists in this namespace" in notes[0] and "exceeded quota: gpus" in notes[1]


def test_an_unhealthy_device_is_reported_once_and_so_is_its_recovery(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.saw_pod(pod(version="11", sick_devices=("nvidia.com/gpu GPU-1",)), 1.0)
    book.saw_pod(pod(version="12", sick_devices=("nvidia.com/gpu GPU-1",)), 1.0)
    (note, sick), acts = book.turn(1.0)
    assert "GPU-1" in note.text and "it is acted on if the training fails, too" in note.text
    assert sick == DevicesSick(node="t-0-a", devices={"nvidia.com/gpu GPU-1": "Unhealthy"})
    assert acts == []
    book.saw_pod(pod(version="13"), 2.0)
    assert book.turn(2.0)[0][1] == DevicesSick(node="t-0-a", devices={})


def test_a_monitors_condition_of_a_node_is_a_report_on_hardware_and_pressure_is_not(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.saw_node(NodeState(name="gpu-1", problems=("MemoryPressure",)), 1.0)
    assert not [one for one in book.turn(1.0)[0] if isinstance(one, DevicesSick)]
    book.saw_node(NodeState(name="gpu-1", problems=("MemoryPressure", "GpuXidError")), 2.0)
    (sick,) = [one for one in book.turn(2.0)[0] if isinstance(one, DevicesSick)]
    assert sick.devices == {"gpu-1 GpuXidError": "GpuXidError"}


def test_nvsentinels_conditions_and_taints_are_named_and_only_faults_count(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.saw_node(NodeState(name="gpu-1", problems=("CSPMaintenance",)), 1.0)
    (note,) = book.turn(1.0)[0]
    assert "CSPMaintenance (maintenance planned by the cloud provider)" in note.text
    taints = (("nvidia.com/gpu", "NoSchedule"), ("nvidia.com/gpu-nvlink-error", "NoSchedule"))
    book.saw_node(NodeState(name="gpu-1", problems=("SysLogsGPUFallenOff",), taints=taints), 2.0)
    news = book.turn(2.0)[0]
    (sick,) = [one for one in news if isinstance(one, DevicesSick)]
    assert set(sick.devices.values()) == {"SysLogsGPUFallenOff", "nvidia.com/gpu-nvlink-error"}
    assert "gpu-1 SysLogsGPUFallenOff (a GPU that has fallen off the bus)" in news[1].text
    book.saw_node(NodeState(name="gpu-1", taints=taints), 3.0)
    assert "taint nvidia.com/gpu-nvlink-error (NVLink failures):NoSchedule:" in book.turn(3.0)[0][0].text


def test_the_node_problem_detectors_conditions_of_services_are_no_fault_of_the_hardware(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    services = ("KubeletUnhealthy", "ContainerRuntimeUnhealthy", "FrequentContainerdRestart", "NTPProblem")
    book.saw_node(NodeState(name="gpu-1", problems=services), 1.0)
    (note,) = book.turn(1.0)[0]
    assert "ContainerRuntimeUnhealthy (its container runtime does not respond)" in note.text
    book.saw_node(NodeState(name="gpu-1", problems=("XfsShutdown",)), 2.0)
    (sick,) = [one for one in book.turn(2.0)[0] if isinstance(one, DevicesSick)]
    assert set(sick.devices.values()) == {"XfsShutdown"}


def test_a_taint_of_another_program_and_a_cordon_are_reported(book):
    book.listed([pod()], 0.0)
    book.turn(0.0)
    book.saw_node(NodeState(name="gpu-1", taints=(("example.com/gpu-fault", "NoExecute"),)), 1.0)
    assert "example.com/gpu-fault:NoExecute" in book.turn(1.0)[0][0].text
    book.saw_node(NodeState(name="gpu-1", cordoned=True), 2.0)
    assert "cordoned" in book.turn(2.0)[0][0].text


def test_a_job_that_begins_again_uses_none_of_the_pods_of_before(book):
    book.listed([pod(), pod("t-1-b")], 0.0)
    book.begin_anew()
    news, acts = book.turn(0.0)
    assert [type(one) for one in news] == [EngineNote] and "restarts from its checkpoint" in news[0].text
    assert {act.pod for act in acts} == {"t-0-a", "t-1-b"} and book.nodes == ()
    book.saw_pod(pod(version="11"), 1.0)
    book.saw_pod(pod("t-0-c", version="12"), 1.0)
    assert book.turn(1.0)[0] == [NodeReady(node="t-0-c")]


def test_a_removal_that_was_refused_is_asked_for_again_later():
    book = PodBook(Rules(remakes_ended=False))
    book.listed([pod("t-worker-0")], 0.0)
    book.saw_pod(ended("t-worker-0"), 1.0)
    act = DeletePod(pod="t-worker-0", uid="uid-t-worker-0")
    assert book.turn(1.0)[1] == [act]
    book.not_done(act, "HTTP 500", 2.0)
    assert turns(book, 60.0, from_s=2.0)[1] == [act]

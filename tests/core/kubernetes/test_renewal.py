"""Pods whose containers all restart in place, and what follows where that is not possible or does not come."""

import pytest

from core.kubernetes.test_pods import pod, turns
from holdfast.core.kubernetes.known import Rules
from holdfast.core.kubernetes.pods import PodBook
from holdfast.core.kubernetes.renewal import BACK_S
from holdfast.model.kubernetes import RENEW, ContainerEnd, DeletePod, Evict, OwnerState
from holdfast.model.nodes.workers import AgentLeaves, EngineNote, NodeDown, NodeReady, NotRemade

BROKEN = {"broken": "proxy has ended with exit code 1", "is_renewable": True}
NAME = "t-0-a"


def broken_book(*, remakes_ended=True, **more):
    book = PodBook(Rules(remakes_ended=remakes_ended))
    book.saw_owner(OwnerState(kind="Job", name="t", uid="u"), 0.0)
    book.turn(0.0)
    book.listed([pod(), pod("t-1-b")], 0.0)
    assert [type(one) for one in book.turn(0.0)[0]] == [NodeReady, NodeReady]
    book.saw_pod(pod(version="11", **{**BROKEN, **more}), 0.0)
    return book


def restarting(**more):
    end = ContainerEnd(code=RENEW)
    return pod(phase="Pending", running=False, ended=end, version="20", **more)


def test_a_failed_container_beside_the_training_ends_nothing_by_itself():
    ((note,), acts) = turns(broken_book(), 100.0)
    assert acts == [] and "the training continues, and all containers of its pod restart" in note.text


def test_no_pod_is_renewed_where_nothing_has_failed():
    book = broken_book(broken="")
    assert book.renew(1.0) is False
    assert book.turn(1.0) == ([], [])


@pytest.mark.parametrize("remakes_ended", [True, False])
def test_its_agent_leaves_and_the_pod_comes_back(remakes_ended):
    book = broken_book(remakes_ended=remakes_ended)
    assert book.renew(1.0) is True
    news, acts = book.turn(1.0)
    assert [type(one) for one in news] == [EngineNote, NodeDown, AgentLeaves, NotRemade] and acts == []
    assert (news[1].node, news[2].code) == (NAME, RENEW)
    assert "container proxy has ended with exit code 1" in news[3].reason
    assert book.nodes == ("t-1-b",)
    book.lost(NAME, "it is down", 1.0)  # as the controller answers: no kubelet is asked, no proof collected
    book.saw_pod(restarting(), 2.0)
    book.saw_pod(restarting(waiting="CrashLoopBackOff"), 8.0)
    assert turns(book, 30.0, from_s=2.0) == ([], [])
    book.saw_pod(pod(restarts=1, version="30"), 31.0)
    assert book.turn(31.0) == ([NodeReady(node=NAME)], [])
    assert set(book.nodes) == {NAME, "t-1-b"}
    assert book.renew(32.0) is False


def test_a_kubelet_that_does_not_know_the_rule_ends_the_pod():
    book = broken_book(remakes_ended=False)
    book.renew(1.0)
    book.turn(1.0)
    book.saw_pod(pod(phase="Failed", running=False, ended=ContainerEnd(code=RENEW), version="20"), 2.0)
    assert book.turn(2.0) == ([], [DeletePod(pod=NAME, uid=f"uid-{NAME}")])


def test_a_pod_that_does_not_come_back_is_evicted_and_then_probed():
    book = broken_book()
    book.renew(1.0)
    book.turn(1.0)
    assert turns(book, 1.0 + BACK_S - 1.0, from_s=1.0) == ([], [])
    _, acts = book.turn(1.0 + BACK_S)
    assert acts[0] == Evict(pod=NAME, uid=f"uid-{NAME}")
    assert [type(one).__name__ for one in acts[1:]] == ["ProbePod"]


def test_without_the_rule_the_pod_is_evicted_at_once():
    book = broken_book(is_renewable=False)
    assert book.renew(1.0) is True
    news, acts = book.turn(1.0)
    assert [type(one) for one in news] == [EngineNote, NodeDown, NotRemade]
    assert "its pod is replaced if the job restarts" in news[0].text
    assert acts == [Evict(pod=NAME, uid=f"uid-{NAME}")]


def test_a_pod_that_is_removed_meanwhile_is_forgotten():
    book = broken_book()
    book.renew(1.0)
    book.turn(1.0)
    book.pod_gone(NAME, f"uid-{NAME}", 2.0)
    assert turns(book, 2 * BACK_S, from_s=2.0) == ([], [])

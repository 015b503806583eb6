"""Dead nodes are taken out of service on two proofs, and restored once they are ready again."""

import pytest

from holdfast.core.kubernetes.known import Rules
from holdfast.core.kubernetes.pods import PodBook
from holdfast.model.kubernetes import Evict, NodeState, PodState, RestoreNode, TakeOutOfService
from holdfast.model.nodes.workers import EngineNote

POD = PodState(name="t-0-a", uid="u", node="gpu-1", phase="Running", running=True, version="10")
TAKE = TakeOutOfService(node="gpu-1", pod="t-0-a")


def node(ready, **more):
    return NodeState(name="gpu-1", ready=ready, **more)


@pytest.fixture
def book():
    one = PodBook(Rules(node_rights=True))
    one.listed([POD], 0.0)
    one.turn(0.0)
    return one


def changes(book, at_s):
    return [act for act in book.turn(at_s)[1] if isinstance(act, TakeOutOfService | RestoreNode)]


def removed_by_force(book):
    """The pod's agent and its kubelet are silent: it is removed before the cluster reports its node."""
    book.lost("t-0-a", "silence", 10.0)
    for at_s in (11.0, 13.5):
        book.probed("t-0-a", answered=False, at_s=at_s)
    _, acts = book.turn(14.0)
    assert [act for act in acts if isinstance(act, Evict)] == [Evict(pod="t-0-a", uid="u", grace_s=0)]
    book.pod_gone("t-0-a", "u", 14.0)
    book.turn(14.0)


def test_a_lost_agent_and_a_node_that_no_longer_reports_are_two_proofs(book):
    removed_by_force(book)
    book.saw_node(node("Unknown"), 50.0)
    news, acts = book.turn(50.0)
    assert acts == [TAKE]
    (note,) = (one for one in news if isinstance(one, EngineNote))
    assert "node.kubernetes.io/out-of-service" in note.text and "pod t-0-a is lost" in note.text
    book.saw_node(node("Unknown"), 51.0)
    assert changes(book, 51.0) == []


def test_the_order_of_the_proofs_does_not_matter(book):
    book.saw_node(node("Unknown"), 5.0)
    assert changes(book, 5.0) == []
    book.lost("t-0-a", "silence", 12.0)
    assert changes(book, 12.0) == [TAKE]


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_node_that_reports_is_never_taken_out_of_service(book, ready):
    removed_by_force(book)
    book.saw_node(node(ready), 50.0)
    assert changes(book, 50.0) == []


def test_nor_is_one_whose_agent_is_back_or_was_lost_long_ago(book):
    book.lost("t-0-a", "silence", 10.0)
    book.returned("t-0-a")
    book.saw_node(node("Unknown"), 50.0)
    assert changes(book, 50.0) == []
    book.lost("t-0-a", "silence", 60.0)
    book.turn(60.0)
    book.saw_node(node("True"), 70.0)
    book.saw_node(node("Unknown"), 900.0)
    assert changes(book, 900.0) == []


def test_without_node_rights_nodes_stay_as_they_are():
    book = PodBook(Rules())
    book.listed([POD], 0.0)
    removed_by_force(book)
    book.saw_node(node("Unknown"), 50.0)
    book.saw_node(node("True", is_out_of_service=True), 60.0)
    assert changes(book, 60.0) == []


def test_a_node_that_is_ready_again_is_restored_once_and_again_if_that_was_refused(book):
    book.saw_node(node("Unknown", is_out_of_service=True), 50.0)
    assert changes(book, 50.0) == []
    for at_s, expected in ((60.0, [RestoreNode(node="gpu-1")]), (61.0, [])):
        book.saw_node(node("True", is_out_of_service=True), at_s)
        assert changes(book, at_s) == expected
    book.not_done(RestoreNode(node="gpu-1"), "HTTP 500", 62.0)
    book.saw_node(node("True", is_out_of_service=True), 70.0)
    assert changes(book, 70.0) == [RestoreNode(node="gpu-1")]

"""When a pod counts as ended because its agent's port refuses connections, and when nothing is proven."""

from holdfast.core.kubernetes.knocks import DOUBT_S, FIRST_TRIES, Knocks


def reached():
    knocks = Knocks()
    knocks.due(["p"], 0.0)
    knocks.answered("p", "accepted", 0.1)
    return knocks


def test_a_port_that_accepted_before_and_refuses_twice_proves_the_end():
    knocks = reached()
    assert knocks.due(["p"], 50.0) == []  # nobody doubts
    knocks.ask("p", 100.0)
    assert knocks.due(["p"], 100.0) == ["p"]
    knocks.answered("p", "refused", 100.0)
    assert not knocks.presume("p", 100.1)
    assert knocks.due(["p"], 100.5) == []
    assert knocks.due(["p"], 101.0) == ["p"]
    knocks.answered("p", "refused", 101.0)
    assert knocks.presume("p", 101.0)
    assert not knocks.presume("p", 101.1)  # once


def test_a_port_that_was_never_reached_proves_nothing():
    knocks = Knocks()
    knocks.ask("p", 0.0)
    for at_s in (0.0, 1.0, 2.0):
        knocks.answered("p", "refused", at_s)
    assert not knocks.presume("p", 2.0)


def test_no_answer_and_a_frozen_pod_prove_nothing():
    for answer in ("none", "accepted"):
        knocks = reached()
        knocks.ask("p", 0.0)
        for at_s in (0.0, 1.0, 2.0):
            knocks.answered("p", answer, at_s)
        assert not knocks.presume("p", 2.0)


def test_refusals_without_doubt_or_long_ago_do_not_count():
    knocks = reached()
    knocks.answered("p", "refused", 1.0)
    knocks.ask("p", 20.0)
    knocks.answered("p", "refused", 20.0)
    assert not knocks.presume("p", 20.0)
    knocks.answered("p", "refused", 20.0 + DOUBT_S + 1)
    assert not knocks.presume("p", 30.0)


def test_a_pod_comes_back_if_its_port_accepts_again():
    knocks = reached()
    knocks.ask("p", 0.0)
    knocks.answered("p", "refused", 0.0)
    knocks.answered("p", "refused", 1.0)
    assert knocks.presume("p", 1.0)
    assert knocks.due(["p"], 9.0) == ["p"]
    assert knocks.answered("p", "accepted", 9.0)
    assert knocks.due(["p"], 30.0) == []


def test_a_port_that_cannot_be_reached_is_tried_a_few_times_only():
    knocks = Knocks()
    tries = sum(len(knocks.due(["p"], at_s)) for at_s in range(0, 1000, 5))
    assert tries == FIRST_TRIES


def test_a_port_that_was_never_reached_is_tried_once_more_when_its_agent_connects():
    knocks = Knocks()
    assert knocks.due(["p"], 0.0) == ["p"]
    knocks.answered("p", "refused", 0.0)  # the agent is being started
    assert knocks.due(["p"], 1.0) == []
    knocks.joined("p")
    assert knocks.due(["p"], 1.0) == ["p"]
    assert knocks.due(["p"], 1.1) == []
    for at_s in range(5, 1000, 5):
        knocks.due(["p"], at_s)
    assert knocks.due(["p"], 1000.0) == []
    knocks.joined("p")
    assert knocks.due(["p"], 1000.0) == ["p"]
    knocks.answered("p", "accepted", 1000.0)
    knocks.joined("p")
    assert knocks.due(["p"], 2000.0) == []  # nobody doubts


def test_first_tries_come_a_few_at_a_time():
    knocks = Knocks()
    names = [f"p{number}" for number in range(100)]
    assert len(knocks.due(names, 0.0)) == 8
    assert len(knocks.due(names, 0.1)) == 8

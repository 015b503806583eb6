"""Nodes that stand by are looked at while nobody waits for them."""

import pytest
from msgspec.structs import replace

from core.workers.worker_group_kit import POLICY, World, exit_of
from holdfast.core.job.decide import decide
from holdfast.core.job.story import Story
from holdfast.core.workers.roster import Settings
from holdfast.model.checks import IDLE
from holdfast.model.events import FindingNoted, NodeIsolated, NodesChecked
from holdfast.model.state import State

AGAIN_S = 600.0
CHECKS = replace(POLICY, boot_check="quick", boot_check_again_s=AGAIN_S)
SETTINGS = Settings(spare_check="quick", check_again_s=AGAIN_S)


def world(nodes=4, workers=2, settings=SETTINGS):
    made = World(nodes, workers, CHECKS, settings)
    made.begin()
    assert made.running == {"n0": (1, 0), "n1": (1, 1)}
    return made


def passes(made, seconds):
    for _ in range(seconds):
        made.tick()
        made.settle()


def looked_at(made, context=IDLE):
    return [event.nodes for event in made.told(NodesChecked) if event.context == context]


def test_they_are_looked_at_once_an_attempt_runs_and_again_before_their_pass_lapses():
    made = world()
    passes(made, 15)
    assert looked_at(made) == []
    passes(made, 15)
    assert sorted(looked_at(made)) == [("n2",), ("n3",)]
    passes(made, 200)
    assert len(looked_at(made)) == 2
    passes(made, 150)
    assert sorted(looked_at(made)) == [("n2",), ("n2",), ("n3",), ("n3",)]


@pytest.mark.parametrize("settings", [Settings(spare_check="quick"), Settings(check_again_s=AGAIN_S)])
def test_they_are_left_alone_where_checks_are_off_or_made_each_time(settings):
    made = world(settings=settings)
    passes(made, 60)
    assert looked_at(made) == []


def test_one_that_has_passed_takes_a_lost_node_s_place_without_a_look():
    made = world(nodes=3)
    passes(made, 30)
    made.crash("n1")
    made.settle()
    passes(made, 20)
    assert made.running == {"n0": (2, 0), "n2": (2, 1)}
    assert looked_at(made, "boot") == [("n0", "n1")]


def test_one_that_is_broken_is_said_and_not_used():
    made = world()
    made.places["n2"].fit = False
    passes(made, 30)
    (noted,) = [event for event in made.told(FindingNoted) if event.finding == "node-refused"]
    assert noted.text == "the spare node n2 is not used, because its check found: a broken device"
    assert [event.node for event in made.told(NodeIsolated)] == ["n2"]
    made.crash("n1")
    made.settle()
    passes(made, 20)
    assert made.running == {"n0": (2, 0), "n3": (2, 1)}


def test_one_that_is_placed_while_it_is_looked_at_answers_both():
    made = world(nodes=3)
    for _ in range(30):
        made.tick()
    assert [order for order in made.places["n2"].orders if order.startswith("spare-")]
    made.crash("n1")
    passes(made, 20)
    assert made.running == {"n0": (2, 0), "n2": (2, 1)}
    assert looked_at(made) == []


def test_nobody_is_looked_at_while_a_recovery_is_under_way():
    made = world(nodes=3)
    passes(made, 10)
    exit_of(made, 0)
    for _ in range(60):
        made.tick()
    assert not [order for order in made.places["n2"].orders if order.startswith("spare-")]


def test_a_second_pass_is_no_line_of_the_log():
    made = world(nodes=3)
    passes(made, 400)
    story, state, lines = Story(CHECKS), State(), []
    for event in made.events:
        decision = decide(state, event, CHECKS)
        state = decision.state
        lines += [line.text for line in story.hear(event, decision)]
    assert len(looked_at(made)) == 2
    said = [line for line in lines if "spare node" in line]
    assert said == ["boot check of n2, a spare node: 1 passed, 0 to look at, 0 skipped, in 0.0 s"]

"""A controller that comes back: what was under way goes on, and nothing is done twice."""

import pytest

from core.workers.worker_group_kit import POLICY, World, exit_of, trains, world
from holdfast.core.nodes import watch as node_watch
from holdfast.core.workers.acts import StartAgent
from holdfast.core.workers.memory import MOVED
from holdfast.model.events import AttemptStarted, FindingNoted, JobMoved, NodeLost
from holdfast.model.nodes.workers import AgentEnded


def test_a_controller_that_comes_back_starts_nothing_anew():
    made = world()
    made.resume()
    made.settle()
    for _ in range(60):
        made.tick()
    assert made.running == {"n0": (1, 0), "n1": (1, 1)}
    assert len(made.starts) == 2
    assert not made.told(NodeLost)


def test_a_start_that_was_under_way_goes_on_with_the_same_rendezvous():
    made = World(2, 2, POLICY)
    made.submit()
    for name in ("n0", "n1"):
        made.start_agent(name)
        made.join(name)
    for _ in range(2):
        made.carry_out("n0")
        made.report("n0")
    assert made.places["n0"].attempt == 1
    made.resume()
    made.settle()
    assert made.running == {"n0": (1, 0), "n1": (1, 1)}
    assert {start.master_port for _, start in made.starts} == {20001}
    assert len(made.told(AttemptStarted)) == 1


def test_a_stop_that_was_under_way_is_asked_for_again():
    made = world()
    exit_of(made, 0)
    made.carry_out("n0")
    made.report("n0")  # this answer was heard by the controller that is gone
    made.resume()
    made.settle()
    assert made.running == {"n0": (2, 0), "n1": (2, 1)}


def test_a_worker_whose_agent_does_not_find_the_new_controller_is_lost_later_than_usual():
    made = world(checks=False)
    made.resume()
    made.join("n0")
    for _ in range(44):
        made.tick()
    assert not made.told(NodeLost)
    made.tick()
    assert [event.node for event in made.told(NodeLost)] == ["n1"]


def test_an_agent_that_ends_because_another_lives_there_is_not_the_end_of_that_one():
    """The controller had one started before it heard that the first had come back."""
    made = world(checks=False)
    made.resume()
    made.settle()
    made.do(made.worker_group.news(AgentEnded(node="n1", code=4), made.at_s))
    for _ in range(60):
        made.do(made.worker_group.heard("n1", made.at_s))
        made.tick()
    assert not made.told(NodeLost)
    assert made.running == {"n0": (1, 0), "n1": (1, 1)}


def test_an_agent_that_ended_is_started_again_though_its_connection_still_seems_open():
    made = world(checks=False)
    made.do(made.worker_group.news(AgentEnded(node="n1", code=1), made.at_s))
    made.do(made.worker_group.heard("n1", made.at_s))  # sent before its end
    acts = [act for later_s in (1.0, 2.0, 3.0) for act in made.worker_group.tick(made.at_s + later_s)]
    assert acts.count(StartAgent("n1")) == 1


def test_nodes_that_the_engine_no_longer_has_are_lost_at_once():
    made = world(4, 2, checks=False)
    gone = made.places.pop("n1")
    made.resume()
    assert [event.node for event in made.told(NodeLost)] == ["n1"]
    made.places["n1"] = gone
    gone.is_up = gone.has_agent = False
    gone.attempt = 0
    made.settle()
    assert set(made.running) == {"n0", "n2"}


def test_the_watch_has_the_limits_that_it_states():
    limits = node_watch.Settings()
    assert (limits.noted_s, limits.node_silence_s) == (3.0, 12.0)


def test_what_is_ordered_anew_has_another_name_than_before():
    made = world()
    assert made.worker_group.roster.order_id("attempt-1/stop/n0") == "attempt-1/stop/n0"
    made.resume()
    assert made.worker_group.roster.order_id("attempt-1/stop/n0") == "attempt-1/stop/n0/1.1"


def test_a_worker_that_has_lost_its_place_and_may_still_run_is_waited_for_all_the_same():
    made = world(checks=False)
    made.cut("n1")
    made.crash("n0")  # all workers are to be placed anew, and the one on n1 has not been ended yet
    made.resume()
    made.settle()
    assert {start.attempt for _, start in made.starts} == {1}
    made.mend("n1")
    made.settle()
    assert made.running == {"n1": (2, 1), "n2": (2, 0)}


def test_a_spare_that_is_not_heard_is_asked_about_and_its_silence_alone_is_no_loss():
    made = world(4, checks=False)
    crashed, silent = made.places["n2"], made.places["n3"]
    crashed.is_up = crashed.has_agent = silent.has_link = False
    made.resume()
    for _ in range(100):
        made.tick()
        made.settle()
    assert [event.node for event in made.told(NodeLost)] == ["n2"]


@pytest.mark.parametrize("has_trained", [True, False])
def test_where_the_job_is_moved_whole_all_begins_as_soon_as_it_is_placed_if_it_has_trained(has_trained):
    made = world(standby=True)
    if has_trained:
        trains(made)
    made.handle(FindingNoted(at_s=made.at_s, finding=MOVED, text="", attempt=1))
    for place in made.places.values():
        place.joined = place.has_agent = False
        place.attempt, place.worker, place.orders, place.standby = 0, None, {}, None
    made.standbys.clear()
    made.worker_group = made._new_group()
    made.handle(JobMoved(at_s=made.at_s, reason="moved"))
    made.resume()
    for name in made.places:
        made.start_agent(name)
    made.settle()
    asked = sorted((name, one.attempt, one.worker) for name, one in made.standbys)
    assert asked == ([("n0", 2, 0), ("n1", 2, 1)] if has_trained else [])
    assert made.running == {"n0": (2, 0), "n1": (2, 1)}

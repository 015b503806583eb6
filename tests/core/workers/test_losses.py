"""What a worker group does when it loses a node, an agent or a worker."""

from msgspec.structs import replace

from core.workers.worker_group_kit import NO_CHECKS, POLICY, World, exit_of, world
from holdfast.core.workers.acts import SetNodeAside, Tell
from holdfast.model.events import (
    FindingNoted,
    NodeIsolated,
    NodeLost,
    NodeReleased,
    NodeReturned,
    WorkerExited,
)
from holdfast.model.nodes.workers import NodeDown
from holdfast.model.orders import IsolateNode
from holdfast.model.state import Running, Waiting

# Losses ---------------------------------------------------------------------------------------------------


def test_a_node_that_is_down_is_lost_at_once_and_its_worker_moves_to_a_spare():
    made = world()
    made.crash("n0")
    made.tick()
    made.settle()
    (lost,) = made.told(NodeLost)
    assert lost.node == "n0"
    assert set(made.running) == {"n1", "n2"}


def test_where_too_few_are_left_nodes_are_asked_for_that_are_enough_for_the_whole_job():
    made = world(3, 3, checks=False)
    made.crash("n0")
    made.tick()
    made.settle()
    assert made.more_for[0] == 3


def test_a_cut_link_is_a_loss_after_its_time_and_not_before():
    made = world(checks=False)
    made.cut("n1")
    for _ in range(11):
        made.tick()
    assert not made.told(NodeLost)
    made.tick()
    made.settle()
    assert [event.node for event in made.told(NodeLost)] == ["n1"]
    assert {name for name, (attempt, _) in made.running.items() if attempt == 2} == {"n0", "n2"}
    assert made.running["n1"] == (1, 1), "what is beyond the cut lives on"


def test_a_short_cut_is_nothing():
    made = world()
    made.cut("n1")
    for _ in range(5):
        made.tick()
    made.mend("n1")
    made.settle()
    for _ in range(20):
        made.tick()
    assert not made.told(NodeLost)
    assert made.running == {"n0": (1, 0), "n1": (1, 1)}


def test_a_node_that_comes_back_ends_the_old_attempt_and_passes_a_check_before_it_is_used():
    made = world()
    made.cut("n1")
    for _ in range(13):
        made.tick()
    made.settle()
    made.mend("n1")
    made.join("n1")
    made.carry_out("n1")
    assert made.places["n1"].attempt == 0
    assert "n1" not in made.worker_group.roster.usable(())
    made.report("n1")
    made.carry_out("n1")
    assert not made.told(NodeReleased)
    made.report("n1")
    assert made.told(NodeReleased)
    assert "n1" in made.worker_group.roster.usable(())
    assert "n1" not in made.state.job.isolated


def test_a_node_that_comes_back_broken_stays_out_and_is_set_aside():
    made = world()
    made.cut("n1")
    for _ in range(13):
        made.tick()
    made.settle()
    made.places["n1"].fit = False
    made.mend("n1")
    made.settle()
    assert "n1" not in made.worker_group.roster.usable(())
    assert any(event.finding == "node-refused" for event in made.told(FindingNoted))
    assert made.worker_group.roster["n1"].isolated


def test_a_spare_that_was_lost_comes_back_without_an_isolation():
    made = world()
    made.cut("n2")
    for _ in range(13):
        made.tick()
    made.mend("n2")
    made.settle()
    assert made.told(NodeReturned)


def test_a_node_that_returned_before_its_isolation_stays_in_use():
    """A pod of Volcano keeps its name: the new one may be there before the decision about the old one."""
    made = world()
    made.cut("n2")
    for _ in range(13):
        made.tick()
    made.mend("n2")
    made.settle()
    order = IsolateNode(incident=1, node="n2", reason="incident 1", only_lost=True)
    acts = made.worker_group.order(order, made.at_s)
    assert [type(act.event) for act in acts if isinstance(act, Tell)] == [NodeIsolated, NodeReleased]
    assert not [act for act in acts if isinstance(act, SetNodeAside)]
    assert "n2" in made.worker_group.roster.usable(())


def test_a_node_with_another_fault_is_isolated_though_it_returned():
    made = world()
    acts = made.worker_group.order(IsolateNode(incident=1, node="n2", reason="incident 1"), made.at_s)
    assert acts == [SetNodeAside("n2", "incident 1")]


def test_in_shadow_a_cut_off_worker_is_left_alone():
    made = World(2, 2, replace(POLICY, shadow=True))
    made.begin()
    made.cut("n1")
    for _ in range(20):
        made.tick()
    made.mend("n1")
    made.settle()
    assert made.running == {"n0": (1, 0), "n1": (1, 1)}


def test_a_node_lost_in_the_middle_of_a_start_keeps_nothing_waiting():
    made = World(3, 2, POLICY, NO_CHECKS)
    made.submit()
    for name in made.places:
        made.start_agent(name)
        made.join(name)
    made.crash("n0")  # it was asked for the port
    made.tick()
    made.settle()
    assert made.running == {"n1": (2, 1), "n2": (2, 0)}


def test_a_node_lost_in_the_middle_of_a_stop_counts_as_stopped():
    made = world(checks=False)
    exit_of(made, 0)
    made.carry_out("n0")
    made.report("n0")
    made.do(made.worker_group.news(NodeDown(node="n1", reason="power"), made.at_s))
    made.places["n1"].is_up = False
    made.settle()
    assert set(made.running) >= {"n0", "n2"}
    assert made.running["n0"][0] == 2


def test_no_node_left_is_waited_for():
    made = world(2, 2, checks=False)
    made.crash("n0")
    for _ in range(3):
        made.tick()
    made.settle()
    assert isinstance(made.state.phase, Waiting)
    made.boot("n0")
    made.settle()
    assert isinstance(made.state.phase, Running)
    assert made.running == {"n0": (2, 0), "n1": (2, 1)}


def test_an_agent_that_is_killed_takes_up_what_it_left():
    made = world()
    made.kill_agent("n1")
    made.tick()
    made.settle()
    assert made.places["n1"].instance == 2
    assert not made.told(NodeLost)
    assert made.running == {"n0": (1, 0), "n1": (1, 1)}


def test_a_worker_that_died_with_its_agent_is_found_out():
    made = world()
    made.places["n1"].attempt, made.places["n1"].worker = 0, None
    made.kill_agent("n1")
    made.tick()
    made.settle()
    for _ in range(6):
        made.tick()
    made.settle()
    assert any(event.worker == 1 and event.code == -9 for event in made.told(WorkerExited))
    assert made.running == {"n0": (2, 0), "n1": (2, 1)}


def test_a_controller_that_was_held_up_loses_nobody_for_that():
    made = world()
    made.do(made.worker_group.silent("n1", 3.0, made.at_s))
    made.tick()
    made.tick(for_s=100.0)
    assert not made.told(NodeLost)

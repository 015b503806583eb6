"""Orders of a job over many nodes: who is told what, and what is waited for."""

from collections.abc import Iterable

from msgspec.structs import replace

from core.workers.worker_group_kit import NO_CHECKS, POLICY, VERSION, World, exit_of, trains, world
from holdfast.core.workers.acts import Act, MoreNodes, Send, Tell
from holdfast.core.workers.group import WorkerGroup
from holdfast.core.workers.nodes import placed
from holdfast.core.workers.roster import Roster
from holdfast.model.events import (
    AttemptStarted,
    AttemptStartFailed,
    AttemptStopped,
    FindingNoted,
    NodesChecked,
    PlacementFailed,
    RankExited,
    StepReached,
    WorkersPlaced,
)
from holdfast.model.nodes.workers import AgentHello, Leave, PortFound
from holdfast.model.orders import IsolateNode, PlaceWorkers, StopAttempt

# Placing --------------------------------------------------------------------------------------------------


def test_a_worker_goes_back_to_its_node_and_others_to_what_is_free():
    assert placed([0, 1], {1: "a"}, ["a", "b", "c"]) == {0: "b", 1: "a"}
    assert placed([0, 1], {0: "gone", 1: "b"}, ["a", "b"]) == {0: "a", 1: "b"}
    assert placed([0, 1], {0: "a", 1: "a"}, ["a", "b"]) == {0: "a", 1: "b"}


def test_never_fewer_than_asked_for():
    assert placed([0, 1], {}, ["a"]) is None
    assert placed([0, 1], {}, ["a", "a"]) is None


def test_the_job_waits_for_the_agents_that_it_needs_and_not_for_the_others():
    made = World(3, 2, POLICY)
    made.submit()
    made.start_agent("n2")
    made.settle()
    assert not made.told(WorkersPlaced)
    made.start_agent("n0")
    made.settle()
    assert made.running == {"n0": (1, 0), "n2": (1, 1)}
    assert len(made.told(AttemptStarted)) == 1


def test_a_shunned_node_is_not_used():
    made = World(3, 2, POLICY)
    made.worker_group.shunned = frozenset({"n1"})
    made.begin()
    assert set(made.running) == {"n0", "n2"}


def test_nodes_that_do_not_come_are_asked_for_elsewhere_and_then_said_to_be_too_few():
    made = World(2, 2, POLICY, NO_CHECKS)
    made.submit()
    made.start_agent("n0")
    made.settle()
    for _ in range(59):
        made.tick()
    assert not made.told(PlacementFailed)
    made.tick()
    (failed,) = made.told(PlacementFailed)
    assert not failed.hopeless
    assert "n1" in failed.reason
    made.start_agent("n1")
    made.settle()
    assert set(made.running) == {"n0", "n1"}


class CountedRoster(Roster):
    looks = 0

    def usable(self, without: Iterable[str]) -> list[str]:
        self.looks += 1
        return super().usable(without)


def test_of_many_nodes_that_join_only_the_last_one_needed_is_a_reason_to_look_for_places():
    nodes = [f"n{number}" for number in range(300)]
    worker_group = WorkerGroup("job", nodes, NO_CHECKS, VERSION, "abc")
    worker_group.roster.__class__ = CountedRoster
    worker_group.order(PlaceWorkers(attempt=1, workers=tuple(range(256))), 0.0)
    acts: list[Act] = []
    for node in reversed(nodes):
        acts += worker_group.joined(
            AgentHello(node=node, address="", instance=node, version=VERSION), "10.0.0.1", 1.0
        )
    (placed,) = [act.event for act in acts if isinstance(act, Tell)]
    assert isinstance(placed, WorkersPlaced)
    assert {one.node for one in placed.placed} == set(nodes[44:])
    assert worker_group.roster.looks == 2


def test_that_all_nodes_are_isolated_is_hopeless():
    made = world(2, 2, checks=False)
    made.do(made.worker_group.order(IsolateNode(incident=1, node="n0", reason="broken"), made.at_s))
    order = PlaceWorkers(attempt=2, workers=(0, 1), without_nodes=("n0",))
    acts = made.worker_group.order(order, made.at_s)
    assert [type(act) for act in acts] == [MoreNodes]
    made.do(acts)
    (failed,) = made.told(PlacementFailed)
    assert failed.hopeless


# Starting -------------------------------------------------------------------------------------------------


def test_all_workers_meet_at_the_node_of_the_first_under_a_name_of_their_own():
    made = world()
    starts = [start for _, start in made.starts]
    assert {(start.master_address, start.master_port, start.run_id) for start in starts} == {
        ("10.0.0.0", 20001, "job-1-abc")
    }
    assert [(start.worker, start.workers) for start in starts] == [(0, 2), (1, 2)]
    (noted,) = [event for event in made.told(FindingNoted) if event.finding == "rendezvous"]
    assert noted.numbers["run_id"] == "job-1-abc"


def test_a_start_is_reported_once_all_run():
    made = World(2, 2, POLICY)
    made.submit()
    for name in ("n0", "n1"):
        made.start_agent(name)
        made.join(name)
    for _ in range(3):
        made.carry_out("n0")
        made.report("n0")
    assert not made.told(AttemptStarted)
    made.settle()
    assert len(made.told(AttemptStarted)) == 1


def test_an_agent_that_does_not_start_its_worker_is_not_waited_for_for_ever():
    made = World(2, 2, POLICY)
    made.submit()
    for name in ("n0", "n1"):
        made.start_agent(name)
        made.join(name)
    for _ in range(3):
        made.carry_out("n0")
        made.report("n0")
    for _ in range(125):
        made.tick()
    (failed,) = made.told(AttemptStartFailed)
    assert failed.worker == 1
    assert "n1" in failed.reason


def test_a_port_that_cannot_be_found_is_a_start_that_failed():
    made = World(1, 1, POLICY)
    made.submit()
    made.start_agent("n0")
    made.join("n0")
    made.places["n0"].orders.clear()
    made.do(made.worker_group.port_found("n0", PortFound(attempt=1, port=0), made.at_s))
    assert made.told(AttemptStartFailed)


# Stopping -------------------------------------------------------------------------------------------------


def test_the_next_attempt_starts_when_every_node_has_said_that_nothing_is_left():
    made = world()
    exit_of(made, 0)
    made.carry_out("n0")
    made.report("n0")
    assert not made.told(AttemptStopped)
    assert {start.attempt for _, start in made.starts} == {1}
    made.settle()
    assert len(made.told(AttemptStopped)) == 1
    assert made.running == {"n0": (2, 0), "n1": (2, 1)}


def test_processes_that_cannot_be_killed_are_reported_once_and_asked_about_again():
    made = world()
    exit_of(made, 0)
    made.carry_out("n0")
    made.places["n0"].reports.clear()
    made.carry_out("n1")
    made.report("n1")
    left = AttemptStopped(at_s=0.0, attempt=1, left=(7,))
    made.do(made.worker_group.on_report("n0", left, made.at_s))
    made.do(made.worker_group.on_report("n0", left, made.at_s))
    assert [event.left for event in made.told(AttemptStopped)] == [(7,)]
    for _ in range(32):
        made.tick()
    assert made.places["n0"].orders, "the order is given again"
    made.settle()
    assert made.told(AttemptStopped)[-1].left == ()
    assert made.running == {"n0": (2, 0), "n1": (2, 1)}


def test_the_same_stop_given_again_is_another_order_and_the_one_before_is_forgotten():
    made = world()
    stop = StopAttempt(attempt=1, reason="a person asks")
    first = [act for act in made.worker_group.order(stop, made.at_s) if isinstance(act, Send)]
    again = [act for act in made.worker_group.order(stop, made.at_s) if isinstance(act, Send)]
    assert {act.order_id for act in first}.isdisjoint(act.order_id for act in again)
    made.do([*first, *again])


def test_a_stop_of_what_is_over_is_answered_at_once():
    made = world()
    stop = StopAttempt(attempt=1, reason="a person asks")
    made.do(made.worker_group.order(stop, made.at_s))
    made.settle()
    (act,) = made.worker_group.order(stop, made.at_s)
    assert isinstance(act, Tell)
    assert isinstance(act.event, AttemptStopped)


# The standby ----------------------------------------------------------------------------------------------


def test_the_next_attempt_is_made_ready_once_this_one_trains_and_meets_at_the_address_given_when_it_starts():
    made = world(standby=True)
    assert not made.standbys
    trains(made)
    assert sorted((name, one.attempt, one.worker) for name, one in made.standbys) == [
        ("n0", 2, 0),
        ("n1", 2, 1),
    ]
    exit_of(made, 0)
    made.settle()
    again = {(one.master_address, one.run_id) for _, one in made.starts if one.attempt == 2}
    assert again == {("10.0.0.0", "job-2-abc")}


def test_that_all_stand_ready_is_said_once_of_each_attempt():
    made = world(standby=True)
    trains(made)
    made.tick()
    made.settle()
    assert [one.attempt for one in made.told(FindingNoted) if one.finding == "standby"] == [1]


def test_where_the_first_worker_moves_all_meet_elsewhere():
    made = world(standby=True, checks=False)
    trains(made)
    made.crash("n0")
    made.tick()
    made.settle()
    assert {one.master_address for _, one in made.starts if one.attempt == 2} == {"10.0.0.2"}
    assert made.running == {"n1": (2, 1), "n2": (2, 0)}


def test_a_controller_that_comes_back_lets_go_what_stands_by():
    made = world(standby=True)
    trains(made)
    made.resume()
    made.settle()
    exit_of(made, 0)
    made.settle()
    assert {one.run_id for _, one in made.starts if one.attempt == 2} == {"job-2-abc"}
    assert made.running == {"n0": (2, 0), "n1": (2, 1)}


def test_an_agent_that_takes_up_a_worker_is_asked_for_what_went_with_the_one_before():
    made = world(standby=True)
    trains(made)
    made.kill_agent("n1")
    made.tick()
    made.settle()
    assert sorted((name, one.attempt, one.worker) for name, one in made.standbys) == [
        ("n0", 2, 0),
        ("n1", 2, 1),
        ("n1", 2, 1),
    ]


# What agents say ------------------------------------------------------------------------------------------


def test_steps_are_the_highest_and_at_most_one_a_second():
    made = world()
    for step in range(1, 6):
        for node in ("n0", "n1"):
            event = StepReached(at_s=made.at_s, attempt=1, step=step, via=f"{node}/s/{step}")
            made.do(made.worker_group.on_report(node, event, made.at_s))
    assert [event.step for event in made.told(StepReached)] == [1]
    made.tick()
    assert [event.step for event in made.told(StepReached)] == [1, 5]


def test_what_is_not_of_this_attempt_and_this_worker_is_not_passed_on():
    made = world()
    for node, attempt, worker in (("n0", 0, 0), ("n2", 1, 0), ("n0", 1, 1), ("n0", 2, 0)):
        event = RankExited(at_s=made.at_s, attempt=attempt, worker=worker, rank=0, code=1)
        made.do(made.worker_group.on_report(node, event, made.at_s))
    assert not made.told(RankExited)


def test_findings_say_of_which_node_they_are():
    made = world()
    made.do(
        made.worker_group.on_report("n2", FindingNoted(at_s=1.0, finding="check", text="warm"), made.at_s)
    )
    assert made.told(FindingNoted)[-1].text == "n2: warm"


def test_what_all_nodes_say_alike_is_said_once_and_once_of_the_others():
    made = world(4, 3)
    for node in ("n1", "n0", "n2"):
        for finding, text in (("environment", f"given to {node}"), ("clock", "the clock is late")):
            made.do(
                made.worker_group.on_report(
                    node, FindingNoted(at_s=1.0, finding=finding, text=text, attempt=1), 1000.0
                )
            )
    for _ in range(5):
        made.tick()
    texts = [event.text for event in made.told(FindingNoted) if event.finding in ("environment", "clock")]
    assert texts == ["n1: the clock is late", "given to n0", "also n0, n2: the clock is late"]


def test_a_note_that_comes_again_from_the_same_node_is_news():
    made = world()
    for _ in range(2):
        note = FindingNoted(at_s=1.0, finding="loss", text="a spike", attempt=1)
        made.do(made.worker_group.on_report("n0", note, made.at_s))
    assert [one.text for one in made.told(FindingNoted) if one.finding == "loss"] == ["n0: a spike"] * 2


def test_answers_to_a_check_are_joined():
    made = World(3, 2, replace(POLICY, boot_check="quick"))
    made.begin()
    (checked,) = made.told(NodesChecked)
    assert checked.nodes == ("n0", "n1")
    assert len(made.told(AttemptStarted)) == 1


def test_a_broken_node_is_left_for_another():
    made = World(3, 2, replace(POLICY, boot_check="quick"))
    made.places["n1"].fit = False
    made.begin()
    assert set(made.running) == {"n0", "n2"}
    assert "n1" in made.state.job.isolated


def test_an_agent_of_another_version_is_sent_away_once():
    made = world()
    hello = AgentHello(node="n9", address="10.0.0.9", instance="i", version="0.9")
    for _ in range(2):
        made.places.setdefault("n9", made.places["n2"])
        made.do(made.worker_group.joined(hello, "10.0.0.9", made.at_s))
    assert [type(command) for _, command in made.said] == [Leave, Leave]
    assert made.dropped == ["n9", "n9"]
    assert sum(event.finding == "agent-refused" for event in made.told(FindingNoted)) == 1


def test_a_worker_that_runs_twice_is_ended_where_it_does_not_belong():
    made = world()
    made.leave("n2")
    made.places["n2"].attempt, made.places["n2"].worker = 1, 0
    made.join("n2")
    assert any(event.finding == "worker-twice" for event in made.told(FindingNoted))
    made.settle()
    assert made.running == {"n0": (1, 0), "n1": (1, 1)}
    assert "n2" in made.worker_group.roster.usable(())

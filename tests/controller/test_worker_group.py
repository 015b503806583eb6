"""The controller of many nodes over its real link and journal: what is told, written down, and acknowledged."""

import os

import pytest

from controller.worker_group_bench import WorkerGroupBench
from holdfast.core.workers.memory import MOVED
from holdfast.model.events import (
    AttemptStarted,
    AttemptStopped,
    FindingNoted,
    JobMoved,
    NodeLost,
    RankExited,
    RankStarted,
    StepReached,
    VerdictReached,
    WorkerExited,
)
from holdfast.model.failures import ErrorRecord, Failure, RankExit
from holdfast.model.nodes.imports import ImportsReport, TakeImports
from holdfast.model.nodes.workers import AgentEnded, Leave, NodeAlive, SetUp, Shipped, StartWorker
from holdfast.model.state import Ended, Running


@pytest.fixture
def bench(tmp_path):
    made = WorkerGroupBench(tmp_path, nodes=3, workers=2)
    yield made
    made.close()


def ends_well(agent):
    agent.tell(WorkerExited, attempt=agent.attempt, worker=agent.worker, code=0)


def vias(events):
    return [event.via for event in events if isinstance(event.via, str)]


def test_a_job_starts_on_two_nodes_and_ends_well(bench):
    bench.begin()
    assert isinstance(bench.agents["n0"].commands[0], SetUp)
    for name in ("n0", "n1"):
        ends_well(bench.agents[name])
    bench.until(lambda: isinstance(bench.controller.state.phase, Ended) or bench.machine.ended)
    assert bench.machine.ended.code == 0
    bench.machine.leave(0, "over")
    bench.until(lambda: bench.worker_group.is_gone)
    assert any(isinstance(command, Leave) for command in bench.agents["n2"].commands)


def test_a_report_is_kept_until_it_is_written_down(bench):
    bench.begin()
    agent = bench.agents["n0"]
    os.rename(bench.path / "journal.db", bench.path / "aside.db")
    (bench.path / "journal.db").mkdir()
    recorded = []
    own = bench.hub.recorded
    bench.hub.recorded = lambda stream, seq: (recorded.append(stream), own(stream, seq))
    agent.tell(RankExited, attempt=1, worker=0, rank=0, code=1)
    bench.until(lambda: bench.told(RankExited))
    for _ in range(5):
        bench.turn()
    assert not recorded
    (bench.path / "journal.db").rmdir()
    os.rename(bench.path / "aside.db", bench.path / "journal.db")
    bench.until(lambda: recorded, step_s=0.5)


def test_what_was_written_down_is_not_heard_again_by_the_next_controller(bench):
    bench.begin()
    bench.until(lambda: len(bench.told(RankStarted)) == 4)
    bench.agents["n0"].tell(StepReached, attempt=1, step=7)
    bench.until(lambda: bench.told(StepReached))
    bench.die()
    bench.agents["n1"].tell(StepReached, attempt=1, step=9)
    bench.until(lambda: any(event.step == 9 for event in bench.told(StepReached)), step_s=0.5)
    written = vias(bench.journal())
    assert len(set(written)) == len(written)
    assert sum(isinstance(event, RankStarted) for event in bench.journal()) == 4
    starts = [
        one for agent in bench.agents.values() for one in agent.commands if isinstance(one, StartWorker)
    ]
    assert len(starts) == 2, "nobody is started twice"


def test_what_was_not_written_down_is_heard_by_the_next_controller(bench):
    bench.begin()
    agent = bench.agents["n1"]
    bench.hub.close()  # it dies
    agent.tell(RankExited, attempt=1, worker=1, rank=2, code=-9)
    agent.tell(WorkerExited, attempt=1, worker=1, code=-9)
    for _ in range(20):
        agent.turn()
    bench.record.close()
    bench.resume()
    bench.until(lambda: bench.told(WorkerExited), step_s=0.5)
    bench.until(
        lambda: bench.worker_group.roster.team.attempt == 2 and not bench.worker_group._launch.missing,
        step_s=0.5,
    )
    assert {agent.attempt for agent in bench.agents.values() if agent.attempt} == {2}


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0])
def test_clocks_that_are_hours_apart_are_set_to_the_jobs(bench, ahead_s):
    bench.agent("n1", ahead_s=ahead_s)
    bench.begin()
    bench.until(lambda: bench.hub.offset_s("n1") is not None, step_s=0.2)
    agent = bench.agents["n1"]
    agent.tell(RankExited, attempt=1, worker=agent.worker, rank=2, code=0)
    bench.until(lambda: bench.told(RankExited))
    (event,) = bench.told(RankExited)
    assert abs(event.at_s - bench.clock()) < 2.0
    times = [event.at_s for event in bench.journal()]
    assert times == sorted(times)


def test_an_agent_of_another_version_is_sent_away_and_said(bench):
    bench.agent("n2", version="0.9")
    bench.begin()
    bench.until(lambda: [one for one in bench.told(FindingNoted) if one.finding == "agent-refused"])
    assert not bench.worker_group.roster["n2"].joined


@pytest.mark.parametrize(
    "body",
    [b"\xc1 this is nothing", b"\x91" * 5000, b"\x81\xa4kind\xa4\xff\xff\xff\xff", b"\x81\xa4kind\xa3odd"],
)
def test_a_report_that_cannot_be_read_keeps_nothing_else_back(bench, body):
    bench.begin()
    agent = bench.agents["n0"]
    agent.link.send(body)
    agent.tell(StepReached, attempt=1, step=3)
    bench.until(lambda: bench.told(StepReached))
    assert any(one.finding == "report-not-read" for one in bench.told(FindingNoted))


def test_files_that_are_shipped_are_written_once_whatever_comes_twice(bench):
    bench.begin()
    agent = bench.agents["n1"]
    for offset, data in ((0, b"one\n"), (4, b"two\n"), (0, b"one\ntwo\n"), (12, b"four\n")):
        agent.send(Shipped(attempt=1, worker=1, name="stdout", offset=offset, data=data))
    agent.send(Shipped(attempt=1, worker=1, name="../secret", offset=0, data=b"x"))
    bench.until(lambda: [one for one in bench.told(FindingNoted) if one.finding == "not-shipped"])
    written = (bench.path / "attempt-001" / "worker-1" / "stdout").read_bytes()
    assert written.startswith(b"one\ntwo\n")
    assert written.count(b"two") == 1
    assert b"4 bytes are missing" in written
    assert not (bench.path / "attempt-001" / "secret").exists()


def test_a_silent_node_is_asked_about_and_lost_when_its_time_is_up(bench):
    bench.begin()
    silent = bench.agents.pop("n1")
    bench.until(lambda: bench.engine.asked, step_s=0.5)
    assert not bench.told(NodeLost)
    bench.engine.news.append(NodeAlive(node="n1"))
    bench.until(lambda: bench.told(NodeLost), step_s=0.5)
    bench.until(lambda: len(bench.told(AttemptStarted)) == 2, step_s=0.5)
    assert bench.agents["n2"].attempt == 2
    assert silent.attempt == 1, "what cannot be reached lives on"
    bench.agents["n1"] = silent
    bench.until(lambda: silent.attempt == 0, step_s=0.5)
    bench.until(lambda: "n1" not in bench.controller.state.job.lost, step_s=0.5)


def test_an_agent_that_ended_is_started_again(bench):
    bench.begin()
    ended = bench.agents.pop("n0")  # it says nothing more, and the end of its connection has not been seen
    bench.engine.news.append(AgentEnded(node="n0", code=-9))
    bench.until(lambda: bench.engine.again == ["n0"], step_s=0.5)
    bench.agents["n0"] = ended


def test_nodes_of_a_job_that_its_scheduler_restarted_are_not_made_anew_once_more(bench):
    bench.begin()
    bench.controller.handle(FindingNoted(at_s=bench.clock(), finding=MOVED, text="suspended", attempt=1))
    bench.engine.remakes = True
    for agent in bench.agents.values():  # other processes, which run nothing
        agent.attempt, agent.worker = 0, None
    bench.die()
    bench.until(lambda: [event.attempt for event in bench.told(AttemptStarted)][-1] == 2, step_s=0.5)
    assert bench.engine.remade == []
    assert len(bench.told(JobMoved)) == 1
    bench.agents["n0"].tell(RankExited, attempt=2, worker=0, rank=0, code=1)
    bench.until(lambda: bench.engine.remade, step_s=0.5)
    assert bench.engine.remade == [3]


# The diagnosis --------------------------------------------------------------------------------------------


def fails(bench):
    """Worker 1 has an error of its own; worker 0 complains about it, first."""
    now_s = bench.clock()
    bench.agents["n0"].failure = Failure(
        exits=(RankExit(rank=0, worker=0, code=1, at_s=now_s),),
        errors=(
            ErrorRecord(
                rank=0, worker=0, type="RuntimeError", message="Connection closed by peer", at_s=now_s
            ),
        ),
        command_code=1,
    )
    bench.agents["n1"].failure = Failure(
        errors=(
            ErrorRecord(
                rank=3, worker=1, type="ValueError", message="bad batch", frame="train.py:8 step", at_s=now_s
            ),
        ),
    )
    bench.agents["n0"].tell(RankExited, attempt=1, worker=0, rank=0, code=1)


def test_a_complaint_on_one_node_is_explained_by_an_error_on_another(bench):
    bench.begin()
    fails(bench)
    bench.until(lambda: bench.told(VerdictReached), step_s=0.1)
    (told,) = bench.told(VerdictReached)
    assert told.verdict.category == "python_exception"
    (culprit,) = told.verdict.culprits
    assert (culprit.rank, culprit.worker, culprit.host) == (3, 1, "n1")
    (case,) = bench.cases
    assert case.nodes == {0: "n0", 1: "n1"}
    bench.until(lambda: isinstance(bench.controller.state.phase, Running), step_s=0.1)


def test_a_worker_that_says_nothing_holds_the_verdict_up_for_a_while_only(bench):
    bench.begin()
    fails(bench)
    bench.agents["n1"].failure, bench.agents["n1"].is_all = Failure(), False
    began_s = bench.clock()
    bench.until(lambda: bench.told(VerdictReached), step_s=0.1)
    assert bench.clock() - began_s < 10.0


@pytest.mark.parametrize(("code", "at_least_s", "at_most_s"), [(-9, 0.0, 0.5), (-11, 1.0, 2.5)])
def test_who_was_killed_is_the_verdict_as_soon_as_all_have_spoken(bench, code, at_least_s, at_most_s):
    """Though checks and launchers may have more to say; what died by another signal may yet be explained."""
    bench.begin()
    killed = (RankExit(rank=2, worker=1, code=code, at_s=bench.clock()),)
    bench.agents["n1"].failure = Failure(exits=killed)
    for name in ("n0", "n1"):
        bench.agents[name].is_all = False
    bench.agents["n1"].tell(RankExited, attempt=1, worker=1, rank=2, code=code)
    bench.until(lambda: bench.told(RankExited))
    began_s = bench.clock()
    bench.until(lambda: bench.told(VerdictReached), step_s=0.05)
    assert at_least_s <= bench.clock() - began_s <= at_most_s
    assert [one.rank for one in bench.told(VerdictReached)[0].verdict.culprits] == [2]


def test_who_was_killed_waits_for_a_worker_that_has_not_spoken(bench):
    bench.begin()
    bench.agents["n1"].failure = Failure(exits=(RankExit(rank=2, worker=1, code=-9, at_s=bench.clock()),))
    bench.agents["n1"].is_all = False
    bench.agents["n1"].tell(RankExited, attempt=1, worker=1, rank=2, code=-9)
    bench.until(lambda: bench.told(RankExited))
    began_s, silent = bench.clock(), bench.agents.pop("n0")
    bench.until(lambda: bench.told(VerdictReached), step_s=0.05)
    assert bench.clock() - began_s > 1.0
    bench.agents["n0"] = silent


def test_a_lost_node_is_the_verdict_at_once(bench):
    bench.begin()
    silent = bench.agents.pop("n1")
    bench.until(lambda: bench.told(NodeLost), step_s=0.5)
    began_s = bench.clock()
    bench.until(lambda: bench.told(VerdictReached), step_s=0.1)
    assert bench.told(VerdictReached)[0].verdict.category == "node_down"
    assert bench.clock() - began_s < 1.0
    bench.until(lambda: bench.told(AttemptStopped), step_s=0.1)
    bench.agents["n1"] = silent


def test_what_the_ranks_import_is_passed_to_nodes_without_a_worker_now_and_later(bench):
    bench.begin()
    bench.until(lambda: len(bench.told(RankStarted)) == 4)
    (spare,) = (agent for agent in bench.agents.values() if agent.worker is None)
    first, other = (agent for agent in bench.agents.values() if agent.worker is not None)
    taken = TakeImports(content=b"{}")
    first.send(ImportsReport(content=b"{}"))
    bench.until(lambda: taken in spare.commands)
    late = bench.agent("n3")
    bench.until(lambda: taken in late.commands)
    assert taken not in first.commands + other.commands

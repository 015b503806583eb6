"""What an agent tells of trouble: evidence, closer looks, checks of its node."""

import os
import signal

from msgspec.structs import replace

from holdfast.model.events import NodesChecked, StepReached, WorkerExited
from holdfast.model.nodes.workers import (
    CheckNode,
    FetchEvidence,
    LookCloser,
    Looked,
    PassSignal,
    Sampled,
    SampleStacks,
    WorkerEvidence,
)
from many.agent.bench import Bench, is_over


def _evidence(bench, node, incident, attempt=1, until_s=6.0):
    asked = FetchEvidence(incident=incident, attempt=attempt, until_s=until_s)
    bench.order(node, f"incident-{incident}/evidence/{node}", asked)
    bench.report(node, WorkerEvidence, lambda one: one.incident == incident and one.is_all)
    return [
        one for one in bench.reports[node] if isinstance(one, WorkerEvidence) and one.incident == incident
    ]


def test_an_exception_is_reported_at_once_with_its_line(bench):
    bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1, worker=1, workers=2)
    bench.told("n0", StepReached)
    bench.do(1, "raise no such thing")
    bench.told("n0", WorkerExited)
    told = _evidence(bench, "n0", 1)
    last = told[-1]
    assert [one.revision for one in told] == list(range(1, len(told) + 1))
    assert (last.attempt, last.worker, last.certain, last.is_all) == (1, 1, True, True)
    (error,) = last.failure.errors or last.failure.tracebacks
    assert (error.type, error.message, error.worker) == ("RuntimeError", "no such thing", 1)
    incident = 1
    while not (seen := _evidence(bench, "n0", incident)[-1].search).matches:
        incident += 1  # the signatures are still being compiled
    assert all(one.name.startswith("attempt-001/worker-1/") for one in seen.sources)
    assert "python-exception" in {one.signature for one in seen.matches}
    bench.stop("n0", 1)
    bench.stopped("n0", 1)


def test_a_healthy_worker_says_so_within_the_time_that_it_is_given(bench):
    bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1, workers=2)
    bench.told("n0", StepReached)
    told = _evidence(bench, "n0", 1)
    assert not told[-1].certain and not told[-1].failure.exits
    assert not told[0].is_all  # it was still waiting for what might come
    bench.stop("n0", 1)
    bench.stopped("n0", 1)


def test_the_ends_of_ranks_are_waited_for_a_moment_when_their_command_was_killed(bench):
    policy = replace(bench.settings.policy, max_restarts=3)
    bench.settings = replace(bench.settings, policy=policy)
    bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1, workers=2)
    given = bench.given(0)
    bench.told("n0", StepReached)
    os.kill(given["launcher"], signal.SIGKILL)
    bench.told("n0", WorkerExited, code=-9)
    first, *_, last = _evidence(bench, "n0", 1)
    assert first.certain and not first.is_all
    assert last.failure.command_code == -9 and not last.failure.exits  # its rank lives on
    bench.stop("n0", 1)
    bench.stopped("n0", 1)


def test_an_attempt_that_is_not_here_has_no_evidence(bench):
    bench.agent("n0")
    bench.joined("n0")
    (told,) = _evidence(bench, "n0", 3, attempt=2)
    assert told.is_all and not told.certain and told.revision == 1


def test_a_command_that_could_not_be_started_is_evidence(bench):
    bench.settings = type(bench.settings)(command=("/not/there",), state_dir=bench.settings.state_dir)
    bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1, workers=2)
    told = _evidence(bench, "n0", 1)
    assert "/not/there" in told[-1].failure.command_error and told[-1].certain


def test_ranks_are_looked_at_closely_and_sampled_again_and_again(tmp_path, cache_home):
    bench = Bench(tmp_path, cache_home, ranks=2)
    try:
        bench.agent("n0")
        bench.joined("n0")
        bench.start("n0", 1, worker=1, workers=2)
        bench.report("n0", Sampled, lambda one: len(one.ranks) == 2)
        bench.order("n0", "attempt-1/look-1/1", LookCloser(attempt=1, look=1, stalled_s=5.0))
        looked = bench.report("n0", Looked)
        assert (looked.attempt, looked.worker, looked.look) == (1, 1, 1)
        assert set(looked.lives) == {2, 3}
        bench.say("n0", SampleStacks(attempt=1, ranks=(3,)))
        sampled = bench.report("n0", Sampled, lambda one: one.trends)
        assert [trend.rank for trend in sampled.trends] == [3]
        bench.say("n0", SampleStacks(attempt=1))
        bench.stop("n0", 1)
        bench.stopped("n0", 1)
    finally:
        left = bench.end()
    assert not left


def test_a_node_is_checked_and_a_signal_passed_on(bench):
    bench.agent("n0")
    bench.joined("n0")
    bench.order("n0", "attempt-1/check/n0", CheckNode(attempt=1))
    checked = bench.told("n0", NodesChecked, attempt=1, context="boot")
    assert checked.nodes == ("n0",) and not checked.why_not
    bench.start("n0", 1)
    given = bench.given(0)
    bench.told("n0", StepReached)
    bench.order("n0", "attempt-1/signal/n0/1", PassSignal(attempt=1, number=10))
    bench.until("the signal to have ended the rank", lambda: is_over(given["pid"]))
    bench.stop("n0", 1)
    bench.stopped("n0", 1)

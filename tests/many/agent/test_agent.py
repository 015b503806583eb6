"""`holdfast agent` on a node of many: a real process, a real hub in the test, real commands."""

import os
import signal
import time
from pathlib import Path

from holdfast.model.events import (
    AttemptStarted,
    AttemptStartFailed,
    AttemptStopped,
    FindingNoted,
    RankExited,
    RankStarted,
    StepReached,
    WorkerExited,
)
from holdfast.model.nodes.workers import FindPort, Leave, PortFound, Sampled
from many.agent.bench import is_over


def test_a_worker_is_started_watched_and_stopped(bench):
    agent = bench.agent("n0")
    hello = bench.joined("n0")
    assert (hello.node, hello.attempt, hello.worker, hello.token) == ("n0", 0, None, "token-1")
    assert hello.address == "127.0.0.1"

    bench.start("n0", 1, worker=1, workers=2, port=29777)
    bench.told("n0", AttemptStarted, attempt=1)
    bench.told("n0", RankStarted, attempt=1, worker=1, rank=1)
    bench.told("n0", StepReached)
    given = bench.given(1)
    assert given["NNODES"] == "2" and given["NODE_RANK"] == "1" and given["MASTER_PORT"] == "29777"
    assert given["MA_SCHEDULE_CNT"] == "0" and given["MA_PROC_START_CNT"] == "1"
    assert given["HOLDFAST_NODE"] == "n0"
    assert given["HOLDFAST_CONTROLLER"] is None and given["HOLDFAST_SECRET_FILE"] is None
    sampled = bench.report("n0", Sampled, lambda one: one.ranks)
    assert (sampled.attempt, sampled.worker, sampled.ranks[0].rank) == (1, 1, 1)
    assert sampled.world_size == 2

    bench.stop("n0", 1)
    bench.stopped("n0", 1)
    assert is_over(given["pid"]) and is_over(given["launcher"])
    assert (bench.folder / "attempt-001" / "worker-1" / "stdout").exists()
    bench.order("n0", "leave", Leave(code=0, reason="the test is over"))
    bench.until("the agent's end", lambda: agent.process.poll() is not None)
    assert agent.process.returncode == 0
    bench.until("its goodbye", lambda: [one for one in bench.left if one.said_goodbye])


def test_a_rank_that_fails_and_the_worker_with_it(bench):
    bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1, worker=0, workers=2)
    bench.told("n0", StepReached)
    bench.do(0, "exit 7")
    bench.told("n0", RankExited, attempt=1, worker=0, rank=0, code=7)
    bench.told("n0", WorkerExited, attempt=1, worker=0, code=1)
    bench.stop("n0", 1)
    bench.stopped("n0", 1)


def test_a_command_that_is_not_there(bench):
    bench.settings = type(bench.settings)(command=("/not/there",), state_dir=bench.settings.state_dir)
    bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1)
    failed = bench.told("n0", AttemptStartFailed, attempt=1)
    assert failed.code == 127 and "/not/there" in failed.reason


def test_an_agent_killed_while_the_training_lives_is_taken_up_by_the_next(bench):
    agent = bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1)
    pid = bench.given(0)["pid"]
    bench.told("n0", StepReached)
    agent.kill()
    bench.agent("n0")
    hello = bench.joined("n0", times=2)
    assert (hello.attempt, hello.worker) == (1, 0)
    assert not is_over(pid)
    before = len(bench.reports["n0"])
    bench.until(
        "samples of the one that goes on",
        lambda: [one for one in bench.reports["n0"][before:] if isinstance(one, Sampled) and one.ranks],
    )
    assert len((bench.notes / "given-0").read_text().splitlines()) == 1
    bench.do(0, "exit 5")
    bench.told("n0", RankExited, rank=0, code=5)
    bench.stop("n0", 1)
    bench.stopped("n0", 1)
    assert len(set(bench.seqs)) == len(bench.seqs)


def test_a_training_that_ends_while_no_agent_lives_is_reported_by_the_next(bench):
    agent = bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1)
    pid = bench.given(0)["pid"]
    bench.told("n0", RankStarted)
    agent.kill()
    os.kill(pid, signal.SIGKILL)
    bench.until("the end of the training", lambda: is_over(pid))
    bench.agent("n0")
    assert bench.joined("n0", times=2).attempt in (0, 1)
    bench.told("n0", RankExited, rank=0, code=-9)
    bench.told("n0", WorkerExited, worker=0)
    bench.stop("n0", 1)
    bench.stopped("n0", 1)


def test_a_controller_that_is_away_ends_nothing_and_misses_nothing(bench):
    bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1)
    pid = bench.given(0)["pid"]
    bench.told("n0", StepReached)
    bench.told("n0", RankStarted)
    bench.away()
    bench.do(0, "exit 9")
    bench.until("the end of the training", lambda: is_over(pid))
    highest = {}
    for stream, seq in bench.seqs:
        highest[stream] = max(seq, highest.get(stream, 0))
    bench.listen(seen=highest)
    bench.joined("n0", times=2)
    bench.told("n0", RankExited, rank=0, code=9)
    assert len(bench.events("n0", RankExited)) == 1
    bench.stop("n0", 1)
    bench.stopped("n0", 1)
    assert len(set(bench.seqs)) == len(bench.seqs)


def test_a_late_start_of_an_attempt_that_was_stopped_starts_nothing(bench):
    bench.agent("n0")
    bench.joined("n0")
    bench.stop("n0", 3)
    bench.stopped("n0", 3)
    bench.start("n0", 2)
    bench.start("n0", 3)
    bench.start("n0", 4)
    bench.told("n0", AttemptStarted, attempt=4)
    given = bench.given(0)
    assert given["HOLDFAST_ATTEMPT"] == "4"
    bench.stop("n0", 2)  # late, of an attempt that never was
    bench.stopped("n0", 2)
    assert not is_over(given["pid"])
    assert [one.attempt for one in bench.events("n0", AttemptStarted)] == [4]
    bench.stop("n0", 4)
    bench.stopped("n0", 4)


def test_a_stop_of_a_newer_attempt_ends_the_older_one_that_runs(bench):
    """A node that was away comes back with an old attempt running."""
    bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1)
    given = bench.given(0)
    bench.stop("n0", 3)
    bench.stopped("n0", 3)
    assert is_over(given["pid"])
    bench.stopped("n0", 1)


def test_what_an_older_attempt_left_without_a_reaper_is_ended(bench):
    agent = bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1)
    given = bench.given(0)
    bench.told("n0", StepReached)
    agent.kill()
    reaper = int(Path(f"/proc/{given['launcher']}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(reaper, signal.SIGSTOP)  # it cannot tell, nor end anything
    (bench.folder / "nodes" / "n0" / "state.json").unlink()  # and the next agent knows nothing of it
    try:
        bench.agent("n0")
        bench.joined("n0", times=2)
        bench.stop("n0", 1)
        bench.stopped("n0", 1)
        bench.until("the end of the training", lambda: is_over(given["pid"]))
    finally:
        os.kill(reaper, signal.SIGKILL)


def test_an_attempt_is_not_run_twice_whatever_was_forgotten(bench):
    agent = bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1)
    bench.given(0)
    agent.kill()
    (bench.folder / "nodes" / "n0" / "state.json").unlink()
    bench.agent("n0")
    bench.joined("n0", times=2)
    before = len(bench.events("n0", AttemptStarted))
    bench.start("n0", 1, again="/again")
    bench.until("the attempt told again", lambda: len(bench.events("n0", AttemptStarted)) > before)
    assert len((bench.notes / "given-0").read_text().splitlines()) == 1
    bench.stop("n0", 1)
    bench.stopped("n0", 1)


def test_sigterm_to_the_agent_gives_its_worker_the_grace_and_says_goodbye(bench):
    agent = bench.agent("n0")
    bench.joined("n0")
    bench.start("n0", 1)
    given = bench.given(0)
    bench.told("n0", StepReached)
    agent.process.send_signal(signal.SIGTERM)
    bench.until("the agent's end", lambda: agent.process.poll() is not None)
    assert agent.process.returncode == 128 + signal.SIGTERM
    assert is_over(given["pid"])
    bench.told("n0", FindingNoted, finding="agent-ends")
    bench.told("n0", AttemptStopped, attempt=1)
    bench.until("its goodbye", lambda: [one for one in bench.left if one.said_goodbye])


def test_an_agent_that_cannot_reach_its_controller_says_why_once(bench):
    addresses = bench.addresses
    bench.away()
    (bench.folder / "controller.json").unlink()
    agent = bench.agent("n0")
    bench.until("the reason", lambda: "cannot be reached" in agent.err)
    assert f"the controller cannot be reached ({addresses}: Connection refused)" in agent.err
    tries = time.monotonic() + 3
    bench.until("some more tries", lambda: time.monotonic() > tries)
    assert agent.err.count("Connection refused") == 1


def test_a_port_is_found(bench):
    bench.agent("n0")
    bench.joined("n0")
    bench.order("n0", "attempt-1/port/0", FindPort(attempt=1))
    first = bench.report("n0", PortFound)
    assert first.attempt == 1 and 1024 < first.port < 65536

"""Jobs of several workers on one machine, with a spare where one is needed: each fault, and that the training goes on as it should."""

import os
import signal
import subprocess
import sys

import pytest

from many.whole_job import LONG_S, WholeJob
from run.place import is_over, wait_for

pytestmark = pytest.mark.timeout(600)  # beside a loaded machine; alone each takes 2 to 12 s
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are for root")
RESTARTS = ("--max-restarts", 9, "--unconditional-restart")


@pytest.fixture
def job(tmp_path, cache_home):
    one = WholeJob(tmp_path, cache_home)
    yield one
    one.end()


@pytest.fixture
def apart(job):
    """Its nodes have networks of their own."""
    job.env["HOLDFAST_HOSTS"] = "netns"
    return job


def counters(given):
    return [(int(one["MA_SCHEDULE_CNT"]), int(one["MA_PROC_START_CNT"])) for one in given]


def test_all_workers_begin_together_and_end_well(job):
    run = job.train(workers=3, ranks=2, spares=0)
    given = job.given_to(count=6)
    assert [one["NODE_RANK"] for one in given] == ["0", "0", "1", "1", "2", "2"]
    assert {one["NNODES"] for one in given} == {"3"}
    nodes = [one["HOLDFAST_NODE"] for one in given[::2]]
    assert nodes == [one["HOLDFAST_NODE"] for one in given[1::2]] and len(set(nodes)) == 3
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in given}) == 1
    assert given[0]["MASTER_ADDR"] == job.nodes.address(nodes[0])
    assert counters(given) == [(1, 1)] * 6
    job.trains().ends_well()
    assert "step 3 " in run.out
    assert len(job.events("attempt-started")) == 1
    assert job.events("verdict-reached") == []


def test_a_rank_that_is_killed_is_begun_again_with_all_others(job):
    job.train(*RESTARTS, spares=0)
    first = job.given_to(1)
    job.trains().kill_rank(2)
    second = job.given_to(2)
    assert counters(second) == [(2, 1)] * 3
    assert second[0]["MASTER_PORT"] != first[0]["MASTER_PORT"]
    job.trains(attempt=2).ends_well()
    (verdict,) = job.events("verdict-reached")
    assert [culprit["rank"] for culprit in verdict["verdict"]["culprits"]] == [2]


def test_an_agent_that_is_killed_costs_the_training_nothing(job):
    job.train(spares=0)
    ranks = job.trains().ranks()
    old = job.agent(job.placed()[1])
    job.kill(old)
    wait_for(lambda: f"a new agent:\n{job.said()}", lambda: job.agent(job.placed()[1]) != old, LONG_S)
    job.trains()
    assert job.ranks() == ranks
    job.ends_well()
    assert len(job.events("attempt-started")) == 1
    assert job.events("verdict-reached") == []


def test_a_rank_that_dies_with_its_agent_is_found_by_the_next_agent(job):
    job.train(*RESTARTS, spares=0)
    job.trains()
    os.kill(job.agent(job.placed()[1]), signal.SIGKILL)
    job.kill_rank(1)
    assert counters(job.given_to(2)) == [(2, 1)] * 3
    job.trains(attempt=2).ends_well()


def test_a_controller_that_is_killed_is_taken_up_again(job):
    run = job.train(*RESTARTS)
    ranks = job.trains().ranks()
    run.kill()
    job.trains()
    job.attach()
    job.waits_for("controller-resumed")
    job.trains()
    assert job.ranks() == ranks
    job.kill_rank(2)
    assert counters(job.given_to(2)) == [(2, 1)] * 3
    job.trains(attempt=2).ends_well()
    assert len(job.events("attempt-started")) == 2


def test_a_rank_that_died_while_no_controller_was_there(job):
    run = job.train(*RESTARTS, workers=2, spares=0)
    job.trains()
    run.kill()
    job.kill_rank(1)
    job.attach()
    assert counters(job.given_to(2)) == [(2, 1)] * 2
    job.trains(attempt=2).ends_well()


def test_success_while_no_controller_was_there(job):
    run = job.train(workers=2, spares=0)
    job.trains()
    run.kill()
    job.go()
    for rank in range(2):
        wait_for(f"the end of rank {rank}", lambda rank=rank: job._rank(rank, 1) is None, LONG_S)
    assert job.attach().code(LONG_S) == 0, job.said()
    job.nothing_left(LONG_S)


@needs_root
def test_a_node_that_crashes_gives_its_place_to_the_spare(apart):
    apart.train(*RESTARTS, "--replace-workers", 3)
    first = apart.trains().given_to(1)
    assert first[0]["MASTER_ADDR"].startswith("10.213.")
    before, spare = apart.placed(), apart.spare()
    apart.nodes.crash(before[2])
    second = apart.given_to(2)
    assert apart.placed(2) == [*before[:2], spare]
    assert second[0]["MASTER_PORT"] != first[0]["MASTER_PORT"]
    apart.trains(attempt=2).ends_well()
    assert [event["node"] for event in apart.events("node-lost")] == [before[2]]


@needs_root
def test_the_master_moves_when_its_node_is_lost(apart):
    apart.train(*RESTARTS, "--replace-workers", 3)
    first = apart.trains().given_to(1)
    master, spare = apart.placed()[0], apart.spare()
    apart.nodes.crash(master)
    second = apart.given_to(2)
    assert second[0]["HOLDFAST_NODE"] == spare
    assert {one["MASTER_ADDR"] for one in second} == {apart.nodes.address(spare)}
    assert first[0]["MASTER_ADDR"] == apart.nodes.address(master)
    apart.trains(attempt=2).ends_well()


@needs_root
def test_a_link_that_is_cut_for_a_moment_costs_nothing(apart):
    run = apart.train("--node-silence", "60s", workers=2, spares=0)
    ranks = apart.trains().ranks()
    far = apart.placed()[1]
    apart.nodes.cut(far)
    run.says(far, LONG_S)  # it has been silent for a while
    apart.trains()
    apart.nodes.join(far)
    apart.trains()
    assert apart.ranks() == ranks
    apart.ends_well()
    assert len(apart.events("attempt-started")) == 1
    assert apart.events("node-lost") == []


@needs_root
def test_a_node_that_is_cut_off_for_long_is_replaced_and_never_used_again(apart):
    apart.train(*RESTARTS, "--replace-workers", 3, "--node-silence", "10s")
    old = apart.trains().rank(1)
    far, spare = apart.placed()[1], apart.spare()
    apart.nodes.cut(far)
    assert apart.given_to(2)[1]["HOLDFAST_NODE"] == spare
    assert not is_over(old)  # it cannot be reached, and harms nobody
    apart.trains(attempt=2)
    apart.nodes.join(far)
    wait_for(lambda: f"the end of the old worker:\n{apart.said()}", lambda: is_over(old), LONG_S)
    apart.trains(attempt=2)
    apart.kill_rank(0, attempt=2)
    apart.given_to(3)
    assert far not in apart.placed(3)
    apart.trains(attempt=3).ends_well()


def test_a_stranger_with_a_wrong_secret_is_refused(job):
    job.train(workers=2, spares=0)
    job.trains()
    wrong = job.path / "wrong"
    wrong.write_text("ab" * 32)
    wrong.chmod(0o600)
    addresses = (job.job() / "controller.json").read_text()
    stranger = subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast", "agent"],
        env=job.env
        | {
            "HOLDFAST_JOB_FOLDER": str(job.job()),
            "HOLDFAST_SECRET_FILE": str(wrong),
            "HOLDFAST_NODE": "node-9",
            "HOLDFAST_ADDRESS": "127.0.0.9",
            "XDG_STATE_HOME": str(job.path / "elsewhere"),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        job.waits_for("finding-noted", lambda event: event["finding"] == "link-refused")
        job.trains()
    finally:
        stranger.kill()
        stranger.communicate()
    job.ends_well()
    assert len(job.events("attempt-started")) == 1, addresses


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_holdfast_ends_the_job_everywhere(job, number):
    run = job.train(workers=2)
    job.trains()
    run.signal(number)
    assert run.code(LONG_S) == 128 + number, job.said()
    job.nothing_left(LONG_S)


def test_a_job_that_fails_for_good_ends_with_its_code_and_leaves_nothing(job):
    run = job.run("--nnodes", 3, "--", "sh", "-c", 'sleep 1; [ "$NODE_RANK" != 1 ] || exit 7; sleep 60')
    assert run.code(LONG_S) == 7, job.said()
    job.nothing_left(LONG_S)


@pytest.mark.torch
def test_torchrun_over_gloo_on_two_nodes(job):
    script = job.path / "meet.py"
    script.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "sum = torch.ones(1)\n"
        "dist.all_reduce(sum)\n"
        "print('ranks that met:', int(sum), flush=True)\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
    )
    run = job.run("--nnodes", 2, "--nproc-per-node", 1, "--", script)
    assert run.code(LONG_S) == 0, job.said()
    assert "ranks that met: 2" in run.out
    job.nothing_left(LONG_S)

"""A slow rank of a job on many nodes is named by the controller, in the log, the journal, the status and the node book."""

import subprocess
import sys
from pathlib import Path

import pytest

from many.whole_job import LONG_S, WholeJob
from run.place import wait_for

pytestmark = pytest.mark.timeout(600)
TRAINING = Path(__file__).with_name("step_times_training.py")


@pytest.fixture
def job(tmp_path, cache_home):
    one = WholeJob(tmp_path, cache_home)
    yield one
    one.end()


def begin(job, slow):
    words = ("--nnodes", 3, "--boot-check", "off", "--", sys.executable, "-S", TRAINING, slow)
    run = job.run(*words)
    run.says("attempt 1 starts", LONG_S)
    return run


def steps(job):
    return max((event["step"] for event in job.events("step-reached")), default=0)


def found(job):
    return [event for event in job.events("finding-noted") if event["finding"].startswith("straggler")]


def test_a_slow_rank_among_those_of_other_nodes_is_named(job):
    run = begin(job, 1)
    slow = job.waits_for("finding-noted", lambda event: event["finding"] == "straggler")
    assert slow["numbers"]["ranks"] == [1.0]
    assert slow["numbers"]["source"] == "log-times"
    assert slow["attempt"] == 1
    run.says("rank 1 on node-", LONG_S)

    def status():
        words = [sys.executable, "-P", "-m", "holdfast", "status", "t"]
        return subprocess.run(words, env=job.env, capture_output=True, text=True, check=False).stdout

    wait_for("the status to say so", lambda: "straggler  rank 1 +" in status(), LONG_S)
    assert len(found(job)) == 1
    job.ends_well()


def test_where_all_are_slower_alike_nobody_is_named(job):
    begin(job, "all")
    wait_for(lambda: f"90 steps:\n{job.said()}", lambda: steps(job) >= 90, LONG_S)
    assert found(job) == []
    job.ends_well()

"""The state of a job on many nodes after its controller, an agent, or a node was killed."""

import json
import time

import pytest

from many.whole_job import WholeJob

pytestmark = pytest.mark.timeout(600)
RIGHT_S = 100.0  # a guard, for a busy machine


@pytest.fixture
def job(tmp_path, cache_home):
    one = WholeJob(tmp_path, cache_home)
    yield one
    one.end()


def becomes(job, state, *, but_never=()):
    until_s = time.monotonic() + RIGHT_S
    while True:
        run = job.start("status", "t", "--json")
        assert run.code() == 0, run.err
        found = json.loads(run.out)
        if found["state"] == state:
            return found
        assert found["state"] not in but_never
        assert time.monotonic() < until_s, f"{found['state']}, not {state}"


def test_without_its_controller_it_is_unsupervised_and_with_nothing_left_dead(job):
    run = job.train(workers=2, spares=0)
    job.trains()
    becomes(job, "training")
    run.kill()
    found = becomes(job, "unsupervised", but_never=("dead",))
    assert "its ranks still run" in found["summary"]["phase_words"]
    job.attach().says("reattached to t")
    becomes(job, "training")
    job.kill_all()
    job.nothing_left()
    becomes(job, "dead", but_never=("training", "unsupervised"))


def test_a_node_that_is_gone_and_no_other(job):
    job.train("--max-restarts", 3, "--unconditional-restart", workers=2, spares=0)
    job.trains()
    job.kill(job.agent("node-0"))
    becomes(job, "training")  # an agent is no part of the training
    job.nodes.crash("node-1")
    becomes(job, "waiting")
    why = job.start("why", "t")
    assert why.code() == 0
    assert why.out.startswith("No healthy node for worker")

"""Commands and stacks of a job at a real Slurm, asked for on the login node."""

import json
import subprocess

import pytest

from many.whole_job import LONG_S
from run.place import HOLDFAST
from slurm.whole_job import SlurmJob

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def job(hosts, tmp_path, cache_home):
    one = SlurmJob(hosts, tmp_path, cache_home)
    yield one
    one.end()


def ask(job, *words):
    """Its exit code, stdout and stderr, on the login node."""
    done = subprocess.run(
        [*job.login, HOLDFAST, *words],
        env=job.env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_nodes_of_the_allocation_answer_and_a_crashed_one_is_named(job):
    run = job.submit(workers=3, spares=1)
    placed = job.placed()
    job.trains()
    code, out, err = ask(
        job, "exec", "t", "--yes", "--json", "--", "sh", "-c", "echo $SLURM_JOB_ID; hostname"
    )
    assert (code, err) == (0, "")
    answers = {tuple(group["workers"]): group["output"].split() for group in json.loads(out)["groups"]}
    assert answers == {(worker,): [job.slurm_id(), placed[worker]] for worker in range(3)}
    stacks = json.loads(ask(job, "stacks", "t", "--json")[1])
    assert sorted(rank for group in stacks["groups"] for rank in group["ranks"]) == [0, 1, 2]
    spare = ({"n1", "n2", "n3", "n4"} - set(placed)).pop()
    if spare == "n1":
        pytest.skip("the first agent was the last to come: the spare is the controller's own node")
    job.cluster.crash(int(spare[1:]))
    code, out, err = ask(
        job,
        "exec",
        "t",
        "--yes",
        "--json",
        "--timeout",
        "10s",
        "--workers",
        "0",
        "--nodes",
        spare,
        "--",
        "true",
    )
    assert not err
    crashed, well = json.loads(out)["groups"]
    assert code == 1
    assert (well["workers"], well["outcome"]) == ([0], "exited")
    assert (crashed["nodes"], crashed["outcome"]) in (([spare], "not-reached"), ([spare], "no-answer"))
    job.go()
    assert run.code(LONG_S) == 0, job.said()

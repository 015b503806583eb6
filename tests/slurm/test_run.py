"""holdfast run at a real Slurm: submitted, taken over, and kept going through crashes, kills and requeues."""

import os
import signal
import sys

import pytest

from many.whole_job import LONG_S, TRAINING
from run.place import wait_for
from slurm.whole_job import SlurmJob

pytestmark = pytest.mark.timeout(1200)
# A training that saves when it is told to, and never ends by itself.
SAVES = """
trap 'echo $NODE_RANK >> $NOTES/saved' USR1
echo $NODE_RANK >> $NOTES/begun
while :; do sleep 0.1; done
"""
RESTARTS = ("--max-restarts", 9, "--unconditional-restart")


@pytest.fixture
def job(hosts, tmp_path, cache_home):
    one = SlurmJob(hosts, tmp_path, cache_home)
    yield one
    one.end()


def test_a_job_is_submitted_and_goes_on_after_a_killed_rank_and_a_crashed_node(job):
    run = job.submit(*RESTARTS, workers=3)
    given = job.given_to()
    assert {one["NNODES"] for one in given} == {"3"}
    assert len({one["HOLDFAST_NODE"] for one in given}) == 3
    job.trains().kill_rank(1)
    job.trains(attempt=2)
    verdict = job.events("verdict-reached")[0]
    assert [culprit["rank"] for culprit in verdict["verdict"]["culprits"]] == [1]
    worker = next(worker for worker in (1, 2) if job.placed(2)[worker] != "n1")
    crashed = job.number(worker, attempt=2)
    job.cluster.crash(crashed)
    job.trains(attempt=3)
    assert f"n{crashed}" not in job.placed(3)
    assert job.field("JobState") == "RUNNING"
    job.go()
    assert run.code(LONG_S) == 0, job.said()
    assert "step 3 " in run.out
    assert len(job.events("attempt-started")) == 3


def test_a_users_own_script_is_taken_over_and_gone_on_with_when_slurm_starts_it_again(job):
    """One line of it is Holdfast: no engine is named, nor how many nodes there are."""
    name = f"slurm-{job.script(3, 'run', '--', sys.executable, '-S', TRAINING, 1)}"
    assert len({one["HOLDFAST_NODE"] for one in job.given_to(count=3)}) == 3
    job.trains()
    job.cluster.ctl("scontrol", "requeue", job.slurm)
    wait_for(lambda: job.said(), lambda: "BeginTime" in job.cluster.ctl("squeue", "-h", "-o", "%r"), LONG_S)
    job.cluster.ctl("scontrol", "update", f"JobId={job.slurm}", "StartTime=now")
    job.trains(attempt=2)
    job.go()
    wait_for(lambda: job.said(), lambda: job.events("job-ended", name) or job.ended(name), LONG_S)
    assert len(job.events("attempt-started", name)) == 2


def test_what_dies_beside_the_training_costs_it_nothing(job):
    """Who follows the job, the controller, and Slurm itself."""
    followed = job.submit(workers=3)
    ranks = job.trains().ranks()
    os.kill(job.inner(followed), signal.SIGKILL)
    followed.process.wait()
    run = job.start("attach", "t", prefix=job.login)
    run.says("following job t")
    job.kill(job.controller())
    run.says("reattached to t in attempt 1", LONG_S)
    wait_for("slurmctld to save the job", lambda: job.cluster.has_saved(job.path, 4), LONG_S)
    job.cluster.kill_slurmctld()
    job.trains(more=20)
    job.cluster.start_slurmctld()
    job.trains(more=20)
    assert job.ranks() == ranks
    job.go()
    assert run.code(LONG_S) == 0, job.said()
    assert len(job.events("attempt-started")) == 1


def test_a_job_is_moved_whole_where_no_spare_is_left(job):
    job.submit(*RESTARTS, workers=3, spares=0)
    job.given_to()
    job.trains()
    crashed = next(number for number in map(job.number, (2, 1)) if number != 1)
    job.cluster.crash(crashed)
    job.trains(attempt=2)
    assert f"n{crashed}" not in job.placed(2)
    assert job.field("Restarts") == "1"
    job.go()
    assert job.runs[0].code(LONG_S) == 0, job.said()


def test_a_job_whose_nodes_crash_while_slurmctld_is_away_is_moved_once_it_is_back(job):
    job.submit(*RESTARTS, spares=0)
    job.given_to()
    job.trains()
    wait_for("slurmctld to save the job", lambda: job.cluster.has_saved(job.path, 4), LONG_S)
    job.cluster.kill_slurmctld()
    for number in (2, 3):
        job.cluster.crash(number)
    job.runs[0].says("Slurm does not respond, Holdfast will try again", LONG_S)
    job.cluster.start_slurmctld()
    # It may have been killed before it saved that a node which an earlier test took out is back.
    wait_for("the living nodes to be up", lambda: job.cluster.resumed(4, 5, 6), LONG_S)
    assert sorted(job.placed(job.trains_again())) == ["n1", "n4", "n5", "n6"]
    job.go()
    assert job.runs[0].code(LONG_S) == 0, job.said()


def test_a_job_is_moved_without_its_spare_where_no_node_is_left_for_it(job):
    """Of six nodes two crash: four are left for four workers and a spare."""
    job.submit(*RESTARTS)
    assert {one["HOLDFAST_NODE"] for one in job.given_to()} <= {"n1", "n2", "n3", "n4", "n5"}
    job.trains()
    for number in (4, 5):
        job.cluster.crash(number)
    job.waits_for("job-moved")
    assert sorted(job.placed(job.trains_again())) == ["n1", "n2", "n3", "n6"]
    job.go()
    assert job.runs[0].code(LONG_S) == 0, job.said()


def test_the_signal_ahead_of_a_time_limit_reaches_every_worker_and_a_cancel_ends_the_job(job):
    """Slurm sends it to the batch script alone, as `--signal=B:USR1@300` asks for."""
    words = ("--engine", "slurm", "--nnodes", 3, "--sbatch-arg=--mem=2000", "--", "sh", "-c", SAVES)
    run = job.run(*words, prefix=job.login)
    workers = [str(worker) for worker in range(3)]
    wait_for(lambda: f"a start:\n{job.said()}", lambda: sorted(job.notes("begun")) == workers, LONG_S)
    wait_for(lambda: f"a start:\n{job.said()}", lambda: job.events("attempt-started"), LONG_S)
    job.cluster.ctl("scancel", "--batch", "--signal=USR1", job.slurm_id())
    wait_for(lambda: f"checkpoints:\n{job.said()}", lambda: sorted(job.notes("saved")) == workers, LONG_S)
    job.cluster.ctl("scancel", job.slurm_id())
    assert run.code(LONG_S) == 143, job.said()
    run.says("the Slurm job was cancelled")
    assert len(job.events("stop-requested")) == 1
    assert not job.events("verdict-reached"), job.said()


def test_the_first_node_is_lost_with_the_controller_and_a_deputy_goes_on(job):
    """n4 is heard last, so that it is the spare: the first node left over would leave nothing to recover."""
    job.cluster.stop_slurmd(4)
    run = job.submit(*RESTARTS, workers=3)
    job.given_to()
    job.trains()
    assert "n4" not in job.placed()
    job.cluster.stop_slurmd(4, goes_on=True)
    wait_for(lambda: job.said(), lambda: "runs the standby controller" in job.deputy_said(), LONG_S)
    wait_for(lambda: job.said(), lambda: job.agents_said("connected") == 4, LONG_S)
    job.cluster.crash(1)
    job.trains(attempt=2)
    assert "n1" not in job.placed(2)
    job.go()
    assert run.code(LONG_S) == 0, job.said()
    assert job.events("job-moved") == []


def test_a_deputy_starts_the_agents_that_were_only_being_launched_when_the_first_node_was_lost(job):
    """On n2 the order to launch is still to be read, on n3 it is lost: Slurm lists the steps of both."""
    cluster = job.cluster
    for number in (2, 3):
        cluster.stop_slurmd(number)
    run = job.submit(*RESTARTS, workers=3)
    wait_for(lambda: job.said(), lambda: "runs the standby controller" in job.deputy_said(), LONG_S)
    wait_for(lambda: job.said(), lambda: job.agents_said("connected") == 2, LONG_S)
    steps = ("squeue", "-h", "-s", "-j", job.slurm_id(), "-o", "%j")
    wait_for(lambda: cluster.ctl(*steps), lambda: cluster.ctl(*steps).count("holdfast-agent") == 4, LONG_S)
    assert not job.events("attempt-started")
    cluster.crash(1)
    cluster.kill_slurmd(3)
    cluster.start_slurmd(3)
    cluster.stop_slurmd(2, goes_on=True)
    assert sorted(job.trains().placed(1)) == ["n2", "n3", "n4"]
    job.go()
    assert run.code(LONG_S) == 0, job.said()
    assert job.events("job-moved") == []


@pytest.mark.parametrize("grace_s", [0, 6])
def test_a_preempted_job_ends_in_order_and_trains_again_once_there_are_nodes_and_has_not_failed(job, grace_s):
    """By a job of a partition of higher priority. No restart is allowed: a failure would end it.

    Without a time of grace Slurm puts it back at once; with one it first tells the steps, and them alone, to end.
    """
    cluster = job.cluster
    cluster.ctl("scontrol", "update", "PartitionName=train", f"GraceTime={grace_s}")
    run = job.submit(workers=3, spares=0)
    job.given_to()
    job.trains()
    flags = ("--partition=urgent", "--nodes=4", "--exclusive", "--wrap=exec sleep 1000")
    urgent = cluster.ctl("sbatch", "--parsable", *flags)
    job.waits_for("finding-noted", lambda event: event["finding"] == "job-moved")
    where = ("squeue", "-h", "-j", urgent, "-o", "%T")
    wait_for(lambda: job.said(), lambda: cluster.ctl(*where) == "RUNNING", LONG_S)
    cluster.ctl("scancel", urgent)
    given = job.trains(attempt=2).given_to(attempt=2)
    assert {(one["MA_SCHEDULE_CNT"], one["MA_PROC_START_CNT"]) for one in given} == {("2", "1")}
    assert not job.events("verdict-reached"), job.said()
    job.go()
    assert run.code(LONG_S) == 0, job.said()
    assert len(job.events("attempt-started")) == 2


def test_a_member_of_an_array_is_moved_by_itself(job):
    """The one that has the id of the whole array: what Slurm is told of that number is told of all."""
    waits = 'while [ ! -e "$NOTES/go" ]; do sleep 0.1; done'
    array = job.script(
        2, "run", *RESTARTS, "--", "sh", "-c", f"'{waits}'", flags=("--array=0-1", "--no-kill")
    )
    words = ("squeue", "-h", "-r", "-j", array, "-t", "R", "-o", "%A %N")
    wait_for(lambda: job.said(), lambda: job.cluster.ctl(*words).count("n") == 2, LONG_S)
    nodes = dict(line.split() for line in job.cluster.ctl(*words).splitlines())
    (other,) = nodes.keys() - {array}
    starts = {one: _starts_of(job, one) for one in nodes}
    wait_for(lambda: job.said(), lambda: [count() for count in starts.values()] == [1, 1], LONG_S)
    job.cluster.crash(2 if nodes[array] == "n[1-2]" else 4)
    wait_for(lambda: job.said(), lambda: starts[array]() == 2, LONG_S)
    assert starts[other]() == 1
    assert "Restarts=0" in job.cluster.ctl("scontrol", "--oneliner", "show", "job", other)
    job.go()
    wait_for(lambda: job.said(), lambda: not job.cluster.ctl(*words), LONG_S)


def _starts_of(job, slurm_id):
    """How many attempts of a job that has the name of its Slurm job have started so far."""
    name = f"slurm-{slurm_id}"
    path = job.job(name) / "journal.db"
    return lambda: len(job.events("attempt-started", name)) if path.exists() else 0


@pytest.mark.parametrize("flag", ["--array=0-3", "-a0-3"])
def test_an_array_is_not_submitted_as_one_job(job, flag):
    run = job.submit(f"--sbatch-arg={flag}")
    assert run.code() == 2
    run.says("submit each by itself")
    assert not job.cluster.ctl("squeue", "-h")

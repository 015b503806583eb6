"""The engine in a real allocation of the mini cluster: agents, crashes, isolation, moves, ends."""

import pytest

from holdfast.slurm_names import expanded
from slurm.kit import wait_for

FOUR = ("n1", "n2", "n3", "n4")


def test_every_node_of_the_job_gets_an_agent_with_all_that_the_job_has_there(batch, cluster):
    if not (cluster.folder / "etc" / "gres.conf").read_text():
        pytest.skip("no device files can be made here, for the GPUs of the cluster")
    job = batch(3, "--gres=gpu:8").up(FOUR[:3])
    env = dict(line.split("=", 1) for line in (job.folder / "env-n2").read_text().splitlines() if "=" in line)
    assert env["HOLDFAST_NODE"] == "n2"
    assert env["HOLDFAST_JOB_FOLDER"] == str(job.folder)
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert env["SLURM_JOB_ID"] == job.id
    assert env["HOLDFAST_CONTROLLER"] == (job.folder / "place").read_text()


def test_an_agent_that_is_killed_is_started_again_in_its_step_and_a_step_that_ends_when_asked(batch, hosts):
    job = batch(2).up(FOUR[:2])
    hosts.on(2, "kill", "-9", job.agents("n2")[0])
    wait_for("another agent on n2", lambda: len(job.agents("n2")) == 2)
    assert not [kind for _, kind, _ in job.news if kind in ("AgentEnded", "NodeDown")]
    hosts.ctl("scancel", f"{job.id}.{_step_on(hosts, job, 'n2')}")
    job.heard("AgentEnded", node="n2")
    job.tell("agent_again", "n2")
    wait_for("another agent on n2", lambda: len(job.agents("n2")) == 3)


def test_a_crashed_node_is_down_within_seconds_and_the_others_live_on(batch, hosts):
    job = batch(4).up(FOUR)
    hosts.crash(3)
    job.heard("NodeDown", ask="n3", node="n3")
    wait_for("n3 down", lambda: hosts.state(3).startswith("down"))
    assert job.field("JobState") == "RUNNING"
    assert all(len(job.agents(node)) == 1 for node in FOUR)
    job.heard("EngineNote", text="State=RESUME")


def test_a_healthy_node_is_alive_and_one_that_is_cut_off_is_no_proof(batch, hosts):
    job = batch(3).up(FOUR[:3])
    job.tell("ask", "n2")
    job.heard("NodeAlive", node="n2")
    hosts.cut(3)
    job.tell("ask", "n3")
    job.heard("EngineNote", text="n3 cannot be reached")
    assert not [kind for _, kind, _ in job.news if kind == "NodeDown"]


def test_without_rights_a_crashed_node_is_taken_out_of_the_job(batch, hosts):
    job = batch(3, user="daemon", no_kill=False).up(FOUR[:3])
    hosts.crash(3)
    job.heard("NodeDown", ask="n3", node="n3")
    job.heard("EngineNote", text="no permission to mark n3 down")
    wait_for("n3 out of the job", lambda: job.field("NodeList") == "n[1-2]")
    assert job.field("JobState") == "RUNNING"


def test_a_node_is_drained_with_the_reason_and_the_job_goes_on(batch, hosts):
    job = batch(3).up(FOUR[:3])
    job.tell("isolate", "n2", "Xid79")
    _, said = job.heard("SetAside", node="n2")
    assert "State=RESUME" in said["says"]
    assert hosts.state(2) == "draining"
    assert "holdfast: Xid79" in hosts.ctl("sinfo", "-h", "-N", "-n", "n2", "-o", "%E")
    assert job.field("JobState") == "RUNNING"


def test_a_move_avoids_the_isolated_node_and_needs_no_two_minutes(batch, hosts):
    """Neither the right to drain, nor anybody outside of the job: all six nodes are its own."""
    job = batch(6, user="daemon").up((*FOUR, "n5", "n6"))
    job.tell("isolate", "n3", "Xid79")
    _, said = job.heard("SetAside", node="n3")
    assert "not drained" in said["says"]
    job.tell("more_nodes", 4)
    at_s, ended = job.heard("EndAsked")
    assert ended["comes_back"]
    wait_for(lambda: f"a second start:\n{job.said()}", lambda: job.starts() == 2, 300)
    assert (job.folder / "starts").stat().st_mtime - at_s < 120
    nodes = expanded(job.field("NodeList"))  # the one on which the nudge ran may not be free yet
    assert "n3" not in nodes and len(nodes) >= 4


def test_a_cancelled_job_ends_and_a_requeued_one_comes_back(batch, hosts):
    job = batch(2).up(FOUR[:2])
    hosts.ctl("scancel", job.id)
    _, said = job.heard("EndAsked")
    assert not said["comes_back"]
    assert "cancelled" in said["reason"]
    again = batch(2).up(FOUR[:2])
    hosts.ctl("scontrol", "requeue", again.id)
    _, said = again.heard("EndAsked")
    assert said["comes_back"]


def test_slurm_that_is_down_is_a_note_and_what_was_asked_is_done_once_it_is_back(batch, hosts):
    job = batch(2).up(FOUR[:2])
    wait_for("slurmctld to save the job", lambda: hosts.has_saved(job.folder, 2))
    hosts.kill_slurmctld()
    job.tell("isolate", "n2", "Xid79")
    _, said = job.heard("SetAside", node="n2")
    assert "not drained" in said["says"]
    assert not [kind for _, kind, _ in job.news if kind in ("NodeDown", "AgentEnded", "EndAsked")]
    hosts.start_slurmctld()
    wait_for(lambda: f"n2 drained:\n{job.said()}", lambda: hosts.state(2).startswith("drain"))
    job.heard("SetAside", node="n2", says="State=RESUME")


def test_the_end_leaves_nothing_on_any_node(batch, hosts):
    job = batch(3).up(FOUR[:3])
    job.tell("end")
    wait_for("the end of the job", lambda: not hosts.ctl("squeue", "-h", "-j", job.id, check=False))
    for number in (1, 2, 3):
        wait_for(
            lambda number=number: hosts.processes(number), lambda number=number: not hosts.processes(number)
        )


def _step_on(cluster, job, node):
    lines = cluster.ctl("squeue", "-h", "-s", "-j", job.id, "-o", "%i|%N|%j").splitlines()
    return next(line.split("|")[0].split(".")[1] for line in lines if f"|{node}|holdfast" in line)


def test_a_healthy_job_is_kept_from_ending_with_a_slurmd(batch, hosts):
    """Slurm gives the node up after SlurmdTimeout, and without --no-kill the whole job with it."""
    job = batch(3, no_kill=False).up(FOUR[:3])
    hosts.kill_slurmd(3)
    _, said = job.heard("EngineNote", text="slurmd on n3 does not answer")
    assert "ends the whole job" in said["text"]
    job.heard("EngineNote", text="n3 was removed from Slurm job")
    hosts.ctl("scontrol", "update", "nodename=n3", "state=down", "reason=as after SlurmdTimeout")
    wait_for("n3 to be given up", lambda: hosts.state(3).startswith("down"))
    assert job.field("JobState") == "RUNNING"
    assert job.field("NodeList") == "n[1-2]"
    assert hosts.on(3, "ps", "-p", job.agents("n3")[0], "-o", "pid=").strip() == job.agents("n3")[0]

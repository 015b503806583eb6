"""What an older attempt has left on a node is ended by the job's folder, never by the job's name alone."""

import os
import subprocess

from agent.running import wait_for_environ
from holdfast.agent.launch import sweep_attempts


def started(folder, attempt=1, node="node-0"):
    names = {"HOLDFAST_JOB": "train", "HOLDFAST_NODE": node, "HOLDFAST_ATTEMPT": str(attempt)}
    env = os.environ | names | {"HOLDFAST_WORKER_DIR": f"{folder}/attempt-{attempt:03d}/worker-0"}
    process = subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True)
    wait_for_environ(process.pid)
    return process


def test_a_job_of_the_same_name_in_another_state_folder_is_left_alone(tmp_path):
    mine = tmp_path / "mine" / "jobs" / "train"
    old = started(mine)
    others = [
        started(mine, attempt=2),
        started(mine, node="node-1"),
        started(tmp_path / "theirs" / "jobs" / "train"),
        started(f"{mine}-2"),
    ]
    try:
        assert sweep_attempts(mine, "node-0", 1) == (old.pid,)
        assert old.wait(60) == -9
        assert [one.poll() for one in others] == [None] * 4
    finally:
        for one in (old, *others):
            one.kill()
            one.wait()

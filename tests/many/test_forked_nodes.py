"""A job with zygotes on several nodes: workers are forked where they were, and on the spare that takes a lost node's place."""

import os
import sys

import pytest

from holdfast.agent import launch
from many.whole_job import LONG_S, WholeJob, words_of
from run.place import wait_for

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are for root"),
]
FLAGS = ("--max-restarts", 3, "--unconditional-restart", "--replace-workers", 3, "--zygote")
TORCHRUN = f"""#!{sys.executable}
import os, subprocess, sys
place = {{"RANK": os.environ["NODE_RANK"], "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}}
sys.exit(subprocess.run([{sys.executable!r}, *sys.argv[1:]], env=os.environ | place).returncode)
"""
TRAIN = """
import json, os, sys, time
ahead = "heavy" in sys.modules
import heavy
rank, notes, attempt = os.environ["RANK"], os.environ["NOTES"], os.environ["HOLDFAST_ATTEMPT"]
with open(f"/proc/{os.getppid()}/comm") as file:
    parent = file.read().strip()
given = {"ahead": ahead, "parent": parent, **os.environ}
with open(f"{notes}/given-{rank}", "a") as file:
    file.write(json.dumps(given) + "\\n")
step = 0
while not os.path.exists(f"{notes}/go"):
    step += 1
    print(f"step {step} of attempt {attempt} loss 0.5", flush=True)
    time.sleep(0.2)
"""


@pytest.fixture
def job(tmp_path, cache_home):
    one = WholeJob(tmp_path, cache_home, hosts="netns", workers=2)
    one.env["HOLDFAST_STANDBY"] = "true"
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "heavy.py").touch()
    (tmp_path / "train.py").write_text(TRAIN)
    launcher = tmp_path / "torchrun"
    launcher.write_text(TORCHRUN)
    launcher.chmod(0o755)
    yield one
    one.end()


def zygotes(job):
    """The nodes that have one."""
    found = set()
    for pid in launch.marked({"HOLDFAST_STATE_DIR": str(job.state)}):
        if words_of(pid, "cmdline") == [b"holdfast", b"zygote"]:
            marks = dict(word.partition(b"=")[::2] for word in words_of(pid, "environ"))
            if node := marks.get(b"HOLDFAST_NODE"):  # not of one that has just begun, or ended
                found.add(node.decode())
    return found


def test_a_worker_that_moves_to_the_spare_is_forked_there(job):
    words = ("--nnodes", 2, "--spares", 1, *FLAGS, "--", job.path / "torchrun", "train.py")
    job.run(*words, PYTHONPATH=job.path / "site-packages")
    before = job.placed()
    (spare,) = set(job.nodes.names) - set(before)
    wait_for(
        lambda: f"a zygote on each node, not only on {zygotes(job)}:\n{job.said()}",
        lambda: zygotes(job) == {*before, spare},
        LONG_S,
    )
    job.nodes.crash(before[1])
    assert job.placed(2) == [before[0], spare]
    second = job.given_to(2)
    assert [(one["parent"], one["ahead"]) for one in second] == [("holdfast-zygote", True)] * 2, job.said()
    job.ends_well()
    wait_for("the end of the zygotes", lambda: not zygotes(job), LONG_S)

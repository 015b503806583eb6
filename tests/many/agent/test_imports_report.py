"""Nodes that share no disk: a spare is told what the ranks import, has its zygote ready, and forks the worker that moves to it."""

import json
import sys

import msgspec

from holdfast.agent import launch
from holdfast.model.nodes.imports import ImportsReport, TakeImports
from holdfast.model.nodes.workers import Leave
from holdfast.model.policy import Policy
from many.whole_job import words_of

TORCHRUN = f"""#!{sys.executable}
import os, subprocess, sys
place = {{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}}
sys.exit(subprocess.run([{sys.executable!r}, *sys.argv[1:]], env=os.environ | place).returncode)
"""
TRAIN = """
import json, os, sys, time
ahead = "heavy" in sys.modules
import heavy
with open(f"/proc/{os.getppid()}/comm") as file:
    parent = file.read().strip()
given = {"ahead": ahead, "parent": parent, "node": os.environ["HOLDFAST_NODE"]}
with open(f"{os.environ['NOTES']}/given-0", "a") as file:
    file.write(json.dumps(given) + "\\n")
step = 0
while True:
    step += 1
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.1)
"""


def with_zygote(bench):
    """The bench's job, as it is run with --zygote."""
    (bench.path / "site-packages").mkdir()
    (bench.path / "site-packages" / "heavy.py").touch()
    (bench.path / "train.py").write_text(TRAIN)
    launcher = bench.path / "torchrun"
    launcher.write_text(TORCHRUN)
    launcher.chmod(0o755)
    policy = Policy(max_restarts=3, boot_check="off", troubleshoot_wait_s=0.0)
    command = (str(launcher), "train.py")
    more = {"command": command, "policy": policy, "zygote": True}
    bench.settings = msgspec.structs.replace(bench.settings, **more)
    bench.wait_s = 250.0


def own_agent(bench, node):
    """An agent that sees nothing of the job's folder."""
    own = {"HOLDFAST_JOB_FOLDER": f"/not/here/jobs/{bench.job}", "HOLDFAST_STATE_DIR": bench.path / node}
    return bench.agent(node, PYTHONPATH=bench.path / "site-packages", **own)


def leave(bench):
    """The agents end, and with them their zygotes."""
    for agent in bench.agents:
        bench.order(agent.node, "leave", Leave(code=0, reason="the test is over"))
        bench.until("the agent's end", lambda agent=agent: agent.process.poll() is not None)
    bench.until("the end of the zygotes", lambda: not launch.marked({"HOLDFAST_JOB": bench.job}))


def has_zygote(bench, node):
    marks = {"HOLDFAST_STATE_DIR": str(bench.path / node)}
    return any(words_of(pid, "cmdline") == [b"holdfast", b"zygote"] for pid in launch.marked(marks))


def test_a_spare_receives_the_imports_and_forks_what_moves_to_it(bench):
    with_zygote(bench)
    own_agent(bench, "n0")
    own_agent(bench, "n1")
    for node in ("n0", "n1"):
        bench.joined(node)
    bench.start("n0", 1)
    told = bench.report("n0", ImportsReport)
    assert "heavy" in json.loads(told.content)["lines"]
    assert not has_zygote(bench, "n1")
    content = json.loads(told.content) | {"cost_s": {}}  # which the zygote of the spare measures itself
    bench.say("n1", TakeImports(content=json.dumps(content).encode()))
    own = bench.path / "n1" / "imports"

    def is_ready():
        return any("heavy" in json.loads(path.read_text())["cost_s"] for path in own.glob("*.json"))

    bench.until("the zygote of the spare", lambda: is_ready() and has_zygote(bench, "n1"))
    bench.stop("n0", 1)
    bench.stopped("n0", 1)
    bench.start("n1", 2)
    given = bench.given(0, 2)
    assert (given["node"], given["parent"], given["ahead"]) == ("n1", "holdfast-zygote", True)
    bench.stop("n1", 2)
    bench.stopped("n1", 2)
    leave(bench)


def test_a_list_that_cannot_be_read_is_ignored(bench):
    with_zygote(bench)
    own_agent(bench, "n0")
    bench.joined("n0")
    bench.say("n0", TakeImports(content=b"\xff{"))
    bench.start("n0", 1)
    assert bench.given(0)["node"] == "n0"
    bench.stop("n0", 1)
    bench.stopped("n0", 1)
    leave(bench)

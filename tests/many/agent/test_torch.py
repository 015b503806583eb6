"""Real torchrun under agents of two nodes: they meet where each start says, those too that were held before it came."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.agent.environment import free_port
from holdfast.agent.launch import sweep
from holdfast.model.events import AttemptStarted, RankExited, RankStarted, StepReached
from holdfast.model.nodes.workers import Leave, PrepareStandby, StandbyState
from holdfast.model.policy import Policy

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

SCRIPT = """
import json, os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, notes = dist.get_rank(), os.environ["NOTES"]
with open(f"{notes}/given-{rank}", "a") as file:
    names = ("RANK", "WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "HOLDFAST_ATTEMPT", "MA_PROC_START_CNT")
    file.write(json.dumps({name: os.environ.get(name) for name in names} | {"pid": os.getpid()}) + "\\n")
value, step = torch.ones(8), 0
while not os.path.exists(f"{notes}/go"):
    step += 1
    dist.all_reduce(value)
    if rank == 0:
        print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.05)
"""
LONG_S = 300  # importing torch on a busy machine


@pytest.fixture
def torch_bench(bench):
    bench.wait_s = LONG_S
    script = bench.path / "train.py"
    script.write_text(SCRIPT)
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    bench.settings = replace(
        bench.settings,
        command=(torchrun, "--nproc-per-node", "1", str(script)),
        policy=replace(Policy(boot_check="off", troubleshoot_wait_s=0.0), max_restarts=3),
        zygote=False,  # once there is a zygote, a standby that waits already is replaced
    )
    for node in ("n0", "n1"):
        bench.agent(node)
        bench.joined(node)
    return bench


def begin(bench, attempt, port, nodes=("n0", "n1")):
    for worker, node in enumerate(nodes):
        bench.start(node, attempt, worker=worker, workers=2, port=port)


def stop(bench, attempt, *nodes, **how):
    for node in nodes:
        bench.stop(node, attempt, **how)
    for node in nodes:
        bench.stopped(node, attempt)


def ready(bench, attempt, *nodes):
    """Has these nodes make an attempt ready, each as the worker of its place; by rank, the process that waits."""
    for worker, node in enumerate(nodes):
        prepare = PrepareStandby(attempt=attempt, worker=worker, workers=2)
        bench.order(node, f"attempt-{attempt}/standby/{worker}", prepare)
    for node in nodes:
        bench.report(node, StandbyState, lambda one: one.is_ready and one.attempt == attempt)
    return [held_rank(bench, attempt, worker) for worker, _ in enumerate(nodes)]


def held_rank(bench, attempt, worker):
    folder = bench.folder / f"attempt-{attempt:03d}" / f"worker-{worker}"
    return json.loads((folder / f"rank-{worker}.shim.json").read_bytes())["pid"]


def test_launchers_that_were_held_meet_where_the_start_says_and_with_a_worker_on_another_node(torch_bench):
    bench = torch_bench
    begin(bench, 1, free_port())
    first = [bench.given(rank) for rank in (0, 1)]
    assert [one["GROUP_RANK"] for one in first] == ["0", "1"] and first[0]["WORLD_SIZE"] == "2"
    bench.told("n0", StepReached)
    waiting = ready(bench, 2, "n0", "n1")

    os.kill(first[1]["pid"], signal.SIGKILL)
    bench.told("n1", RankExited, attempt=1, rank=1, code=-9)
    stop(bench, 1, "n0", "n1", force=True)
    begin(bench, 2, free_port())
    bench.told("n0", AttemptStarted, attempt=2)
    bench.told("n0", StepReached, attempt=2)
    second = [bench.given(rank, times=2) for rank in (0, 1)]
    assert [one["pid"] for one in second] == waiting
    assert [one["HOLDFAST_ATTEMPT"] for one in second] == ["2", "2"]
    assert [one["MA_PROC_START_CNT"] for one in second] == ["2", "2"]
    for node, rank in (("n0", 0), ("n1", 1)):
        found = bench.told(node, RankStarted, attempt=2)
        assert (found.rank, found.pid) == (rank, second[rank]["pid"])
        assert not bench.events(node, RankExited)[1:]
    bench.report("n0", StandbyState, lambda one: not one.is_ready)

    _meets_a_worker_that_begins_on_another_node(bench, second)


def _meets_a_worker_that_begins_on_another_node(bench, before):
    """The first worker is killed with all that stood by in it: its rank begins beside its launcher. The other was ready."""
    waiting = ready(bench, 3, "n0", "n1")
    killed = sweep({"HOLDFAST_JOB": bench.job, "HOLDFAST_NODE": "n0", "HOLDFAST_SHIM": "1"})
    assert {before[0]["pid"], waiting[0]} <= set(killed)
    bench.agent("n2")
    bench.joined("n2")
    stop(bench, 2, "n0", "n1", force=True)
    bench.order("n0", "leave", Leave(code=0, reason="its node is given up"))
    bench.until("the end of n0", lambda: bench.left)
    begin(bench, 3, free_port(), nodes=("n2", "n1"))
    third = [bench.given(rank, times=3) for rank in (0, 1)]
    assert [one["pid"] for one in third] == [held_rank(bench, 3, 0), waiting[1]]
    assert (bench.folder / "attempt-003" / "worker-0" / "beside.rank-0.go").exists()
    bench.told("n2", StepReached, attempt=3)
    stop(bench, 3, "n2", "n1")

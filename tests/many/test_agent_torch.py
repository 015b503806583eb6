"""Real torchrun under agents of two nodes: they meet at the address that each start names, and a standby is released."""

import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.agent.environment import free_port
from holdfast.model.events import AttemptStarted, RankExited, StepReached
from holdfast.model.nodes import PrepareStandby, StandbyState
from holdfast.model.policy import Policy

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

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
LONG_S = 60  # importing torch on a busy machine


@pytest.fixture
def torch_bench(bench):
    pytest.importorskip("torch")
    bench.wait_s = LONG_S
    script = bench.path / "train.py"
    script.write_text(SCRIPT)
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    bench.settings = replace(
        bench.settings,
        command=(torchrun, "--nproc-per-node", "1", str(script)),
        policy=replace(Policy(boot_check="off", troubleshoot_wait_s=0.0), max_restarts=3),
    )
    for node in ("n0", "n1"):
        bench.agent(node)
        bench.joined(node)
    return bench


def test_two_workers_meet_and_a_standby_meets_as_the_next_attempt(torch_bench):
    bench = torch_bench
    ports = [free_port(), free_port()]
    for worker, node in enumerate(("n0", "n1")):
        bench.start(node, 1, worker=worker, workers=2, port=ports[0])
    first = [bench.given(rank) for rank in (0, 1)]
    assert [one["GROUP_RANK"] for one in first] == ["0", "1"] and first[0]["WORLD_SIZE"] == "2"
    bench.told("n0", StepReached)
    for worker, node in enumerate(("n0", "n1")):
        standby = PrepareStandby(
            attempt=2,
            worker=worker,
            workers=2,
            master_address="127.0.0.1",
            master_port=ports[1],
            run_id=f"{bench.job}-2-x",
        )
        bench.order(node, f"attempt-2/standby/{worker}", standby)
    ready = [bench.folder / "attempt-002" / f"worker-{worker}" / f"rank-{worker}.ready" for worker in (0, 1)]
    for node in ("n0", "n1"):
        bench.report(node, StandbyState, lambda one: one.is_ready and one.attempt == 2)
    bench.until("the standby at its gate", lambda: all(one.exists() for one in ready))

    os.kill(first[1]["pid"], signal.SIGKILL)
    bench.told("n1", RankExited, attempt=1, rank=1, code=-9)
    for node in ("n0", "n1"):
        bench.stop(node, 1, force=True)
    for node in ("n0", "n1"):
        bench.stopped(node, 1)
    for worker, node in enumerate(("n0", "n1")):
        bench.start(node, 2, worker=worker, workers=2, port=ports[1])
    bench.told("n0", AttemptStarted, attempt=2)
    bench.told("n0", StepReached, attempt=2)
    second = [bench.given(rank, times=2) for rank in (0, 1)]
    assert [one["HOLDFAST_ATTEMPT"] for one in second] == ["2", "2"]
    assert [one["MA_PROC_START_CNT"] for one in second] == ["2", "2"]
    bench.report("n0", StandbyState, lambda one: not one.is_ready)
    for node in ("n0", "n1"):
        bench.stop(node, 2)
        bench.stopped(node, 2)

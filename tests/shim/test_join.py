"""A process that joins a group becomes a rank, whatever started it: real processes, a real reaper, real gloo groups."""

import json
import sys

import pytest
from rank_kit import SHIM

from agent.running import Job, wait_for
from holdfast.agent.environment import free_port
from holdfast.agent.launch import CommandGone, RankFound, RankGone, RankWithdrawn

GROUP = """
import os, sys, time
import torch.distributed as dist
rank, size, port = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + port, rank=rank, world_size=size)
dist.barrier()
print("joined", rank, flush=True)
"""
SPAWN = """
import os, sys
import torch.distributed as dist, torch.multiprocessing as mp
def work(rank, size, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo")
    print("joined", rank, flush=True)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), 9)
    dist.barrier()
if __name__ == "__main__":
    mp.spawn(work, (2, sys.argv[1]), nprocs=2)
"""


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "worker-0"
    folder.mkdir()
    one = Job(folder)
    yield one
    one.end()
    wait_for("the end of its processes", lambda: not one.marked())


def watched(job, script, *words, **env):
    path = job.folder.parent / "train.py"
    path.write_text(script)
    ours = {"HOLDFAST_SHIM": "1", "HOLDFAST_WORKER_DIR": str(job.folder), "PYTHONPATH": str(SHIM)}
    return job.run([sys.executable, str(path), *words], **ours, **env)


@pytest.mark.torch
def test_ranks_that_only_the_spawned_processes_know_of(job):
    watched(job, SPAWN, str(free_port()))
    gone = job.until(RankGone, rank=1)
    job.until(CommandGone)
    found = {one.rank: one for one in job.all(RankFound) if one.source == "said"}
    assert sorted(found) == [0, 1]
    assert {one.world_size for one in found.values()} == {2}
    assert gone.pid == found[1].pid and gone.code == -9
    assert (job.folder / "rank-0.log").read_text() == "joined 0\n"
    assert json.loads((job.folder / "rank-1.shim.json").read_bytes())["pid"] == found[1].pid


@pytest.mark.torch
@pytest.mark.parametrize("variable", ["RANK", "PMIX_RANK"])
def test_a_rank_of_the_environment_gives_way_to_who_joins(job, variable):
    """RANK of a whole pod, PMIX_RANK of a library that looked for MPI: all processes have it, and one is that rank."""
    watched(job, SPAWN, str(free_port()), **{variable: "0"})
    job.until(CommandGone)
    named = [one for one in job.all(RankFound) if one.source != "said"]
    said = {one.rank: one.pid for one in job.all(RankFound) if one.source == "said"}
    assert sorted(said) == [0, 1]
    for one in named:
        is_withdrawn = any(gone.pid == one.pid and gone.rank == one.rank for gone in job.all(RankWithdrawn))
        assert is_withdrawn or said.get(one.rank) == one.pid
    # All of them were the same rank at first, and wrote to the same names.
    for rank, pid in said.items():
        note = json.loads((job.folder / f"rank-{rank}.shim.json").read_bytes())
        assert (note["pid"], note["rank"]) == (pid, rank)


@pytest.mark.torch
def test_a_rank_whose_environment_is_wrong_is_the_one_that_its_group_says(job):
    watched(job, GROUP, "0", "1", str(free_port()), RANK="7", LOCAL_RANK="7")
    job.until(CommandGone, code=0)
    assert [one.rank for one in job.all(RankFound) if one.source == "said"] == [0] * len(
        [one for one in job.all(RankFound) if one.source == "said"]
    )
    assert "joined 0" in (job.folder / "rank-0.log").read_text()


@pytest.mark.torch
def test_two_trainings_in_one_command_are_two_worlds(job):
    script = """
import subprocess, sys
group = [subprocess.Popen([sys.executable, sys.argv[1], "0", "1", port]) for port in sys.argv[2:]]
sys.exit(max(one.wait() for one in group))
"""
    group = job.folder.parent / "group.py"
    group.write_text(GROUP.replace("print(", "time.sleep(3); print("))
    watched(job, script, str(group), str(free_port()), str(free_port()))
    job.until(CommandGone, code=0)
    said = {one.rank: one for one in job.all(RankFound) if one.source == "said"}
    assert sorted(said) == [0, 1]
    assert [(said[rank].world, said[rank].own_rank) for rank in (0, 1)] == [(0, 0), (1, 0)]
    assert (job.folder / "rank-1.log").read_text() == "joined 0\n"


@pytest.mark.torch
def test_the_wrapped_function_and_its_errors_are_the_frameworks_own(ranks):
    program = """
import inspect, torch.distributed as dist
from torch.distributed import distributed_c10d
assert dist.init_process_group is distributed_c10d.init_process_group
assert list(inspect.signature(dist.init_process_group).parameters)[0] == "backend"
import pickle; assert pickle.loads(pickle.dumps(dist.init_process_group)) is dist.init_process_group
try:
    dist.init_process_group("gloo", init_method="nonsense://", rank=0, world_size=1)
except Exception as error:
    print(type(error).__name__)
"""
    code, out, err = ranks.run(program, rank=None)
    plain = ranks.run(program, rank=None, shim=False)
    assert (code, out) == plain[:2]


RAISES = """
import os, sys
import torch.distributed as dist, torch.multiprocessing as mp
import multiprocessing
def work(rank, port):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + port, rank=rank, world_size=1)
    raise ValueError("bad batch 7")
if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        mp.spawn(work, (sys.argv[2],), nprocs=1)
    else:
        one = multiprocessing.get_context(sys.argv[1][8:]).Process(target=work, args=(0, sys.argv[2]))
        one.start(); one.join(); sys.exit(one.exitcode)
"""


@pytest.mark.torch
@pytest.mark.parametrize("way", ["spawn", "process-spawn", "process-fork"])
def test_an_exception_that_the_launcher_of_a_function_catches_is_recorded(job, way):
    watched(job, RAISES, way, str(free_port()))
    assert job.until(CommandGone).code == 1
    error = json.loads((job.folder / "rank-0.error.json").read_bytes())
    assert (error["type"], error["message"]) == ("ValueError", "bad batch 7")
    assert "train.py:7 work" in error["frame"]

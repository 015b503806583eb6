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

# The same without torch in the process that starts them.
PROCESSES = """
import multiprocessing, os
def work(rank, port):
    import torch.distributed as dist
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo")
    dist.barrier()
if __name__ == "__main__":
    import sys
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=work, args=(rank, sys.argv[1])) for rank in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
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
    watched(job, PROCESSES, str(free_port()), **{variable: "0"})
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
    until_both = 'while not os.path.exists(os.environ["NOTES"] + "/both"): time.sleep(0.02)\n'
    group.write_text(GROUP.replace("print(", until_both + "print("))
    watched(job, script, str(group), str(free_port()), str(free_port()))
    for rank in (0, 1):
        job.until(RankFound, rank=rank, source="said")
    (job.folder / "both").touch()
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
plain = inspect.unwrap(dist.init_process_group)
assert plain is not dist.init_process_group
assert inspect.signature(dist.init_process_group) == inspect.signature(plain)
assert list(inspect.signature(dist.init_process_group).parameters)[0] == "backend"
import pickle; assert pickle.loads(pickle.dumps(dist.init_process_group)) is dist.init_process_group
def error_of(call):
    try:
        call("gloo", init_method="nonsense://", rank=0, world_size=1)
    except Exception as error:
        return type(error), str(error)
assert error_of(dist.init_process_group) == error_of(plain) != None
"""
    assert ranks.run(program, rank=None)[0] == 0


# Three groups of one rank, each started in another way. Of each the file of its error is kept under the way's name.
RAISES = """
import glob, os, sys
import torch.distributed as dist, torch.multiprocessing as mp
import multiprocessing
def work(rank, port):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + port, rank=rank, world_size=1)
    raise ValueError("bad batch 7")
def spawn(port):
    try:
        mp.spawn(work, (port,), nprocs=1)
    except mp.ProcessRaisedException:
        return 1
def process(way, port):
    one = multiprocessing.get_context(way).Process(target=work, args=(0, port))
    one.start(); one.join()
    return one.exitcode
if __name__ == "__main__":
    place = os.environ["HOLDFAST_WORKER_DIR"]
    for way, port in zip(("spawn", "process-spawn", "process-fork"), sys.argv[1:]):
        code = spawn(port) if way == "spawn" else process(way[8:], port)
        [error] = glob.glob(place + "/rank-*.error.json")
        os.rename(error, place + "/" + way + ".json")
        print(way, code, flush=True)
"""


@pytest.mark.torch
def test_an_exception_that_the_launcher_of_a_function_catches_is_recorded(job):
    watched(job, RAISES, *(str(free_port()) for _ in range(3)))
    job.until(CommandGone, code=0)
    for way in ("spawn", "process-spawn", "process-fork"):
        error = json.loads((job.folder / f"{way}.json").read_bytes())
        assert (error["type"], error["message"]) == ("ValueError", "bad batch 7"), way
        assert "train.py:7 work" in error["frame"], way

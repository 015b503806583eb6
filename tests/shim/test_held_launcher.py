"""A launcher that stands by: it is held before it reads its environment, and is given the ranks that it began meanwhile.

The launcher here is a small one that starts ranks by the class that torchrun has for it: what is tested is the shim.
"""

import ast
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from rank_kit import wait_for, waits_for_lock

from holdfast.agent.standby.rank_starts import RankStart
from holdfast.agent.standby.start import with_ranks_begun

HANDLER = """import subprocess
class SubprocessHandler:
    _stdout = _stderr = None
    def __init__(self, args, env, out=None):
        self._stdout = out
        self.proc = self._popen(args, env)
    def _popen(self, args, env):
        return subprocess.Popen(args=args, env=env, stdout=self._stdout, start_new_session=True)
"""
FOLDER = "torch/distributed/elastic/multiprocessing/subprocess_handler"
RANK = """import os
given = {name: os.environ.get(name) for name in ("RANK", "MASTER_PORT", "OWN", "HOLDFAST_GATE", "HOLDFAST_HELD")}
open(os.path.join(os.environ["HOLDFAST_WORKER_DIR"], "given"), "w").write(str((os.getpid(), given)))
"""
LAUNCH = """import json, os, subprocess, sys
from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler
more = json.loads(os.environ.get("PET_MORE", "{}"))
env = dict(os.environ, RANK="0", LOCAL_RANK="0", MASTER_PORT=os.environ["PET_MASTER_PORT"])
env.update(more)
argv = [sys.executable, "-u", os.environ["SCRIPT"], *json.loads(os.environ.get("PET_ARGV", "[]"))]
handler = SubprocessHandler(argv, env, subprocess.PIPE if os.environ.get("PET_OUT") else None)
print(handler.proc.wait(), handler.proc.pid, os.environ["PET_MASTER_PORT"], os.environ.get("HOLDFAST_GATE"))
"""


def pytorch(ranks, handler):
    parts = FOLDER.split("/")
    for end in range(1, len(parts) + 1):
        ranks.module("/".join(parts[:end]) + "/__init__.py", "")
    ranks.module("torch/distributed/run.py", "")
    ranks.module(f"{FOLDER}/subprocess_handler.py", handler)


@pytest.fixture
def launcher(ranks, gate):
    """Starts it, held; gives its process, and that of the rank that waits."""
    script = ranks.module("rank.py", RANK)
    listing = ranks.folder / "ranks"
    start = {"argv": [sys.executable, "-u", str(script)], "env": {"RANK": "0", "LOCAL_RANK": "0"}}
    listing.write_text(json.dumps([start]))

    def started(program=LAUNCH, handler=HANDLER):
        pytorch(ranks, handler)
        env = {"HOLDFAST_GATE": str(gate.path), "HOLDFAST_RANKS": str(listing), "SCRIPT": str(script)}
        process = ranks.start(program, rank=None, name="torchrun", **env)
        wait_for(lambda: {"gate.ready", "rank-0.ready"} <= set(ranks.names()))
        return process, ranks.read("rank-0.shim.json")["pid"]

    return started


def given(ranks):
    return ast.literal_eval((ranks.folder / "given").read_text())


def finish(process):
    out, err = process.communicate()
    return process.returncode, out.decode().splitlines(), err.decode()


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_it_is_held_and_then_has_its_rank_and_both_know_what_came_late(ranks, gate, launcher):
    process, rank = launcher()
    wait_for(lambda: waits_for_lock(process))
    assert "given" not in ranks.names()
    gate.open('{"PET_MASTER_PORT": "29501"}')
    assert finish(process) == (0, [f"0 {rank} 29501 None"], "")
    late = {"RANK": "0", "MASTER_PORT": "29501", "OWN": None, "HOLDFAST_GATE": None, "HOLDFAST_HELD": None}
    assert given(ranks) == (rank, late)


@pytest.mark.parametrize(
    "late",
    [{"PET_MORE": '{"OWN": "1"}'}, {"PET_MORE": '{"RANK": "1"}'}, {"PET_ARGV": '["x"]'}, {"PET_OUT": "1"}],
)
def test_a_rank_that_is_not_the_one_that_is_wanted_ends_and_another_is_started(ranks, gate, launcher, late):
    process, rank = launcher()
    gate.open(json.dumps({"PET_MASTER_PORT": "29501"} | late))
    code, (line,), err = finish(process)
    assert (code, err) == (0, "") and line.startswith("0 ") and f" {rank} " not in line
    pid, _ = given(ranks)
    assert pid != rank and f" {pid} " in line
    wait_for(lambda: is_gone(rank))


def test_a_rank_that_has_died_is_started_anew(ranks, gate, launcher):
    process, rank = launcher()
    os.kill(rank, signal.SIGKILL)
    wait_for(lambda: is_gone(rank))
    gate.open('{"PET_MASTER_PORT": "29501"}')
    code, (line,), err = finish(process)
    assert (code, err) == (0, "") and line.startswith("0 ") and f" {rank} " not in line


def test_a_launcher_that_nobody_lets_go_ends_and_so_does_its_rank(ranks, gate, launcher):
    process, rank = launcher()
    wait_for(lambda: waits_for_lock(process))
    gate.drop()
    assert finish(process) == (0, [], "")
    wait_for(lambda: is_gone(rank))
    assert "given" not in ranks.names()


def test_a_launcher_of_a_pytorch_that_starts_ranks_in_another_way_is_left_alone(ranks, gate, launcher):
    program = "import os; print(os.environ['PET_MASTER_PORT'])"
    process, rank = launcher(program, handler="SubprocessHandler = None")
    gate.open('{"PET_MASTER_PORT": "29501"}')
    assert finish(process) == (0, ["29501"], "")
    wait_for(lambda: is_gone(rank))


def test_a_launcher_that_is_not_to_wait_is_given_the_rank_that_it_has_begun(ranks):
    pytorch(ranks, HANDLER)
    script = ranks.module("rank.py", RANK)
    starts = (RankStart((sys.executable, "-u", str(script)), {"RANK": "0", "LOCAL_RANK": "0"}),)
    plain = {"PET_MASTER_PORT": "29501", "SCRIPT": str(script)}
    env = with_ranks_begun(plain, ranks.folder, starts, None)
    process = ranks.start(LAUNCH, rank=None, name="torchrun", **env)
    code, (line,), err = finish(process)
    pid, late = given(ranks)
    assert (code, line, err) == (0, f"0 {pid} 29501 None", "")
    assert late["MASTER_PORT"] == "29501" and late["HOLDFAST_HELD"] is None
    assert (ranks.folder / "beside.rank-0.go").exists()

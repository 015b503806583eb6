"""How ranks are started is known as soon as they run: an attempt that dies before its first step is started again, too."""

import os
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest

from holdfast.agent.part import unmet
from holdfast.agent.standby.keeper import StandbyKeeper
from holdfast.agent.standby.rank_starts import SEEN, RankStart, rank_starts

RANK = "import sys; print('up', flush=True); sys.stdin.read()"
LAUNCHER = """
import os, subprocess, sys
env = dict(os.environ, RANK="3", LOCAL_RANK="0")
rank = subprocess.Popen([sys.executable, "-I", "-S", "-c", sys.argv[1], "--lr", "1"], env=env)
print(rank.pid, flush=True)
rank.wait()
"""


@pytest.fixture
def rank_pid(tmp_path):
    """Of a rank under a launcher; both end with their standard input."""
    env = dict(os.environ, HOLDFAST_WORKER_DIR=str(tmp_path))
    command = [sys.executable, "-I", "-S", "-c", LAUNCHER, RANK]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=env, **pipes) as launcher:
        words = {launcher.stdout.readline().strip(), launcher.stdout.readline().strip()} - {b"up"}
        yield int(words.pop())
        launcher.stdin.close()


SERVER = """
import os, subprocess, sys
python, program = sys.argv[1:]
launcher = subprocess.Popen([python, "-I", "-S", "-c", program, "run"], env=os.environ | {"LR": "1"})
env = dict(os.environ, RANK="3", LOCAL_RANK="0", LR="1")
rank = subprocess.Popen([python, "-I", "-S", "-c", program, "--lr", "1"], env=env)
print(rank.pid, flush=True)
launcher.wait(), rank.wait()
"""


@pytest.fixture
def forked_pid(tmp_path):
    """Of a rank beside its launcher, both children of a process that looks like a fork server."""
    (tmp_path / "zygote").write_text(SERVER)
    env = dict(os.environ, HOLDFAST_WORKER_DIR=str(tmp_path))
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "cwd": tmp_path,
        "executable": sys.executable,
    }
    with subprocess.Popen(["holdfast", "zygote", sys.executable, RANK], env=env, **pipes) as server:
        words = [server.stdout.readline().strip() for _ in range(3)]
        yield next(int(word) for word in words if word.isdigit())
        server.stdin.close()


def attempt(folder, pid, **more):
    """As far as a keeper of standbys looks at one that has begun, and has made no step."""
    rank = SimpleNamespace(pid=pid, gone=False)
    facts = {"step": None, "started_s": 0.0, "stopping": False, "is_done": False, "local_size": 1}
    return SimpleNamespace(number=1, folder=folder, ranks={3: rank}, worker=3, workers=4, **(facts | more))


def keeper():
    return StandbyKeeper(lambda number, part: None, lambda: 0.0, is_wanted=True, holds_launcher=True)


def test_it_is_noted_before_the_first_step(tmp_path, rank_pid):
    (tmp_path / "rank-3.shim.json").touch()
    keeper_ = keeper()
    assert not keeper_.tend(attempt(tmp_path, rank_pid))
    (start,) = msgspec.json.decode((tmp_path / SEEN).read_bytes(), type=tuple[RankStart, ...])
    assert start.argv[-2:] == ("--lr", "1")
    assert start.env == {"RANK": "3", "LOCAL_RANK": "0"}
    assert keeper_._starts_of(unmet(3, 4)) == (start,)


def test_the_launcher_of_a_forked_rank_is_a_child_of_the_fork_server_too(forked_pid):
    (start,) = rank_starts([forked_pid])
    assert start.env == {"RANK": "3", "LOCAL_RANK": "0"}


def test_not_as_long_as_ranks_are_missing_or_the_shim_has_not_reached_them(tmp_path, rank_pid):
    keeper().tend(attempt(tmp_path, rank_pid))
    (tmp_path / "rank-3.shim.json").touch()
    keeper().tend(attempt(tmp_path, rank_pid, local_size=2))
    assert not (tmp_path / SEEN).exists()

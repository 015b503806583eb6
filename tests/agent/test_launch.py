"""This end of a reaper: who dies when, and what is known afterwards."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agent.reaper.test_reaper import DEAF, LAUNCHER, SLEEPER
from agent.running import is_over, wait_for
from holdfast.agent import launch
from holdfast.agent.launch import (
    CommandGone,
    LifelineLost,
    RankFound,
    RankGone,
    ReaperLost,
    Released,
    Started,
    Stopped,
)

SRC = Path(launch.__file__).parents[2]
OWNER = """
import json, sys
from pathlib import Path
from holdfast.agent import launch
given = json.loads(sys.argv[1])
given["folder"] = Path(given["folder"])
running = launch.launch(launch.LaunchSpec(**given))
running.read()
print("launched", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owned(job):
    """Has another process launch the job; returns that process."""
    owners = []

    def begin(argv, detach, **env):
        spec = {"argv": argv, "cwd": "/", "env": job.environment(**env), "folder": str(job.folder)}
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, json.dumps({**spec, "detach": detach})],
            env={**os.environ, "PYTHONPATH": str(SRC)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        owners.append(owner)
        assert owner.stdout.readline() == b"launched\n"
        return owner

    yield begin
    for owner in owners:
        owner.kill()
        owner.communicate()


def file_facts(job):
    """The facts in the file, by kind."""
    path = job.folder / launch.FACTS
    lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return {fact["kind"]: fact for fact in map(json.loads, lines)}


def facts_when_over(job):
    reaper = file_facts(job)["started"]["reaper"]
    wait_for("the reaper's end", lambda: is_over(reaper))
    over = launch.attach(job.folder)
    assert not over.alive
    return over.read()


def test_nothing_is_left_when_the_launching_process_is_killed(job, owned):
    owner = owned([sys.executable, "-S", "-c", LAUNCHER], False, RANK_SCRIPT=DEAF)
    wait_for("ranks", lambda: "rank-started" in file_facts(job))
    owner.kill()
    facts = facts_when_over(job)
    assert not job.marked()
    assert LifelineLost in map(type, facts)
    assert isinstance(facts[-1], Stopped)


def test_a_detached_command_goes_on_and_is_taken_up_without_a_gap(job, owned):
    owner = owned([sys.executable, "-S", "-c", LAUNCHER], True, RANK_SCRIPT=SLEEPER)
    wait_for("ranks", lambda: "rank-started" in file_facts(job))
    owner.kill()
    wait_for("the loss", lambda: "lifeline-lost" in file_facts(job))
    job.running = launch.attach(job.folder)
    assert job.running.alive
    rank = job.until(RankFound, rank=1)
    assert not is_over(rank.pid)
    os.kill(rank.pid, signal.SIGKILL)
    assert job.until(RankGone, rank=1).code == -9
    job.until(CommandGone, code=1)
    job.stop()
    assert [fact.n for fact in job.facts] == list(range(1, len(job.facts) + 1))


def test_a_detached_command_that_ended_alone_is_not_lost(job, owned):
    os.mkfifo(job.folder / "fifo")
    owner = owned(["sh", "-c", "read line < $NOTES/fifo; exit 3"], True)
    wait_for("the start", lambda: "started" in file_facts(job))
    owner.kill()
    wait_for("the loss", lambda: "lifeline-lost" in file_facts(job))
    (job.folder / "fifo").write_text("go\n")
    facts = facts_when_over(job)
    assert [fact.code for fact in facts if isinstance(fact, CommandGone)] == [3]
    assert isinstance(facts[-1], Stopped)


def test_detach_can_be_said_later(job):
    job.python(SLEEPER)
    pid = job.until(Started).pid
    job.running.detach()
    job.running.close()
    job.running = launch.attach(job.folder)
    assert job.until(LifelineLost).detached
    assert not is_over(pid)


def test_a_killed_reaper_takes_the_command_along_and_sweep_the_rest(job):
    job.python(LAUNCHER, RANK_SCRIPT=SLEEPER)
    started, rank = job.until(Started), job.until(RankFound, rank=1)
    os.kill(started.reaper, signal.SIGKILL)
    job.until(ReaperLost)
    assert not job.running.alive
    assert job.running.fileno() == -1
    wait_for("the launcher's end", lambda: is_over(started.pid))
    assert rank.pid in job.marked()
    assert rank.pid in launch.sweep(job.marks)
    wait_for("the ranks' end", lambda: not job.marked())
    assert isinstance(launch.attach(job.folder).read()[-1], ReaperLost)


def test_a_stopped_tree_is_not_lost_whatever_is_reported_after_it(job):
    job.python(SLEEPER)
    job.until(Started)
    job.stop()
    job.running.close()
    facts = facts_when_over(job)
    assert isinstance(facts[-1], LifelineLost)  # told after Stopped


def test_bye_lets_the_reaper_end(job):
    job.shell("exit 0")
    reaper = job.until(Started).reaper
    job.until(CommandGone)
    job.running.bye()
    wait_for("the reaper's end", lambda: is_over(reaper))


def test_long_paths(job):
    job.folder = job.folder / ("long-" * 20) / ("longer-" * 20)
    job.folder.mkdir(parents=True)
    job.python(SLEEPER)
    job.until(Started)
    other = launch.attach(job.folder)
    assert other.alive
    wait_for("the facts", other.read)
    other.close()
    job.stop()


def test_a_relative_folder(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job.folder = job.folder.relative_to(tmp_path)
    job.shell("pwd", cwd=".")
    job.until(CommandGone, code=0)
    assert (job.folder / "stdout").read_text().strip() == str(tmp_path)


def test_a_client_that_never_reads_and_one_that_talks_nonsense(job):
    job.python(SLEEPER)
    job.until(Started)
    channels = [_connected(job.folder) for _ in range(2)]
    for channel in channels:
        channel.settimeout(0.0)
    asked = 0
    try:
        while asked < 20_000:  # until its buffers are full
            channels[0].sendall(b'{"do": "follow", "from": 0}\n' * 50)
            asked += 50
    except OSError:
        pass
    nonsense = [
        b"[]",
        b"{",
        b'{"do": "stop", "grace_s": NaN}',
        b'{"do": "signal"}',
        b'{"do": "go", "env": 3}',
    ]
    channels[1].sendall(b"\n".join([*nonsense, b'{"do": "follow", "from": "x"}', b"\xff", b""]))
    assert job.stop().left == ()
    assert "reaper-fault" not in file_facts(job)
    for channel in channels:
        channel.close()


def _connected(folder):
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    channel.connect(f"/proc/self/fd/{directory}/{launch.SOCKET}")
    os.close(directory)
    return channel


def test_a_signal_is_passed_on(job):
    job.python(SLEEPER)
    job.until(Started)
    job.running.signal(signal.SIGINT)
    job.until(CommandGone)
    job.stop()


def test_a_gate_holds_until_go(job):
    spec = job.spec(["sh", "-c", "flock $NOTES/gate cat $NOTES/gate.go"])
    values = {name: getattr(spec, name) for name in spec.__struct_fields__} | {"gate": "gate"}
    job.running = launch.launch(launch.LaunchSpec(**values))
    job.until(Started)
    assert not job.all(CommandGone)
    job.running.go({"MASTER_PORT": "4242"})
    job.until(Released)
    job.until(CommandGone, code=0)
    assert json.loads((job.folder / "stdout").read_text()) == {"MASTER_PORT": "4242"}


def test_launching_leaks_no_descriptor(job):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        job.shell("exit 0")
        job.until(CommandGone)
        job.stop()
        job.running.bye()
        job.running, job.facts = None, []
    assert len(os.listdir("/proc/self/fd")) == before

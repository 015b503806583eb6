"""The reaper with real commands: how they end, how they are ended, which of them are ranks."""

import ast
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from agent.running import is_over, state, wait_for
from holdfast.agent import launch
from holdfast.agent.launch import CommandGone, RankFound, RankGone, Started, StartFailed, Stopped, Stopping

REAPER = Path(launch.__file__).with_name("reaper")

# A launcher that polls its ranks every 100 ms, as torchrun does, but collects none: see below for one that does.
LAUNCHER = """
import os, subprocess, sys, time
ranks = [
    subprocess.Popen(
        [sys.executable, "-S", "-c", os.environ["RANK_SCRIPT"]],
        env={**os.environ, "RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": "2", "MASTER_PORT": "29500"},
    )
    for n in range(2)
]
while not any(os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) for rank in ranks):
    time.sleep(0.1)
for rank in ranks:
    os.kill(rank.pid, 9)
    os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
os._exit(1)
"""
SLEEPER = "import time; time.sleep(600)"
DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(os.environ["NOTES"] + "/ready", "w").write("yes\\n")
time.sleep(600)
"""


def modules():
    return sorted(REAPER.glob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.name)
def test_it_imports_the_standard_library_and_itself_only(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert {name.name.split(".")[0] for name in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1 or (node.module or "").split(".")[0] in sys.stdlib_module_names


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", -9), ("kill -SEGV $$", -11), ("kill -TERM $$", -15)],
)
def test_how_the_command_ended(job, script, code):
    job.shell(script)
    assert job.until(CommandGone).code == code


@pytest.mark.parametrize(
    ("argv", "cwd", "says"),
    [
        (["/nowhere/train"], "/", "nowhere"),
        (["no-such-train"], "/", "no-such"),
        (["true"], "/nowhere", "nowhere"),
    ],
)
def test_a_command_that_cannot_be_run(job, argv, cwd, says):
    job.run(argv, cwd=cwd)
    failed = job.until(StartFailed)
    assert failed.errno == 2
    assert says in failed.error
    assert not job.all(Started)
    assert job.stop().left == ()


def test_the_command_has_three_files_open_and_default_signals(job):
    job.run(["sh", "-c", "ls -l /proc/self/fd; grep -E 'Sig(Ign|Blk)' /proc/self/status"])
    job.until(CommandGone, code=0)
    said = (job.folder / "stdout").read_text()
    assert sorted(line.split()[8] for line in said.splitlines() if "->" in line) == ["0", "1", "2", "3"]
    assert f"-> {job.folder}/stderr" in said
    masks = [int(line.split()[1], 16) for line in said.splitlines() if line.startswith("Sig")]
    # 32 and 33 are the C library's own. posix_spawn (make uses it) leaves them ignored, and nobody may reset them.
    assert [mask & ~(0b11 << 31) for mask in masks] == [0, 0]


def test_output_that_cannot_be_written_does_not_keep_the_command_from_running(job):
    (job.folder / "stdout").mkdir()  # root may write into any folder, but not into this as a file
    job.shell("echo hello; echo moan >&2; exit 3")
    assert job.until(CommandGone).code == 3
    assert (job.folder / "stderr").read_text() == "moan\n"


def test_its_folder_may_be_deleted_under_it(job):
    job.shell("read line < $NOTES/gate; exit 4")
    job.until(Started)
    for path in job.folder.iterdir():
        path.unlink()
    job.folder.rmdir()
    assert job.stop().left == ()


def test_a_daemon_and_a_new_session_do_not_get_away(job):
    job.shell("(setsid sh -c 'sleep 600 & echo $! >$NOTES/daemon; exec sleep 600' &) ; exit 0")
    daemon = int(job.note("daemon"))
    job.until(CommandGone, code=0)
    assert not is_over(daemon)
    stopped = job.stop()
    assert (stopped.killed, stopped.left) == ((), ())
    assert is_over(daemon)
    assert not job.marked()


def test_one_that_ignores_sigterm_is_killed_after_the_grace(job):
    job.python(DEAF)
    job.note("ready")
    pid = job.until(Started).pid
    assert job.stop(grace_s=0.3).killed == (pid,)
    times = {type(fact): fact.t for fact in job.facts}
    assert times[Stopped] - times[Stopping] >= 0.29
    assert job.until(CommandGone).code == -9


def test_a_stopped_process_gets_no_grace(job):
    job.python(SLEEPER)
    pid = job.until(Started).pid
    os.kill(pid, signal.SIGSTOP)
    wait_for("the stop", lambda: state(pid) == "T")
    assert job.stop(grace_s=3600.0).killed == (pid,)


def test_a_tree_that_forks_while_it_is_killed(job):
    job.python(
        """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):  # chains of processes, each of which forks the next and ends
    if os.fork() == 0:
        for _ in range(20_000):  # a bound, lest a failed test leave it to run for ever
            if os.fork():
                os._exit(0)
open(os.environ["NOTES"] + "/ready", "w").write("yes\\n")
signal.pause()
"""
    )
    job.note("ready")
    assert job.stop(grace_s=0.1).left == ()
    assert not job.marked()


def test_it_may_finish_by_itself(job):
    os.mkfifo(job.folder / "fifo")
    job.python(
        """
import os, signal
open(os.environ["NOTES"] + "/ready", "w").write("yes\\n")
open(os.environ["NOTES"] + "/fifo").read()
raise SystemExit(5)
"""
    )
    job.note("ready")
    job.running.stop(grace_s=5.0, finish_s=3600.0, why="it said that it ends")
    job.until(Stopping)
    (job.folder / "fifo").write_text("now")
    stopped = job.until(Stopped)
    assert (stopped.killed, job.until(CommandGone).code) == ((), 5)


def test_a_second_harder_stop_wins(job):
    job.python(DEAF)
    job.note("ready")
    job.running.stop(grace_s=3600.0, finish_s=3600.0, why="gently")
    job.until(Stopping)
    job.running.stop(grace_s=7200.0, why="no longer gently")
    job.running.kill("now")
    assert job.until(Stopped).left == ()
    assert len(job.all(Stopping)) == 1


def test_a_save_on_sigterm_gets_its_grace_though_no_rank_is_left(job):
    """Ranks that ended well are no reason to hurry what comes after them."""
    job.python(
        """
import os, signal, subprocess, sys, time
subprocess.run([sys.executable, "-S", "-c", os.environ["RANK_SCRIPT"]], env={**os.environ, "RANK": "0", "LOCAL_RANK": "0"})
def save(*_):
    until_s = time.monotonic() + 0.8
    while time.monotonic() < until_s:
        time.sleep(0.05)
    os._exit(6)
signal.signal(signal.SIGTERM, save)
open(os.environ["NOTES"] + "/ready", "w").write("yes\\n")
time.sleep(600)
""",
        RANK_SCRIPT="import os, time\nwhile not os.path.exists(os.environ['NOTES'] + '/found'): time.sleep(0.02)",
    )
    job.until(RankFound)
    (job.folder / "found").touch()
    job.note("ready")
    job.until(RankGone, code=0)
    job.stop(grace_s=10.0)
    assert job.until(CommandGone).code == 6


def test_ranks_are_found_and_the_killed_one_reported(job):
    job.python(LAUNCHER, RANK_SCRIPT=SLEEPER)
    first, second = job.until(RankFound, rank=0), job.until(RankFound, rank=1)
    assert (first.local_rank, first.world_size, first.master_port) == (0, 2, 29500)
    os.kill(second.pid, signal.SIGKILL)
    assert job.until(RankGone, rank=1).code == -9
    assert job.until(RankGone, rank=0).code == -9
    assert job.until(CommandGone).code == 1
    assert [fact.n for fact in job.facts] == list(range(1, len(job.facts) + 1))


def test_what_a_rank_forks_or_starts_is_no_rank(job):
    script = f"""
import os, subprocess, sys, time
helper = subprocess.Popen([sys.executable, "-S", "-c", {SLEEPER!r}])
if os.fork() == 0:
    time.sleep(600)
open(os.environ["NOTES"] + "/ready-" + os.environ["RANK"], "w").write("yes\\n")
time.sleep(600)
"""
    job.python(LAUNCHER, RANK_SCRIPT=script)
    job.note("ready-0"), job.note("ready-1")
    pids = {job.until(RankFound, rank=rank).pid for rank in (0, 1)}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    job.until(RankGone, rank=0), job.until(RankGone, rank=1)
    job.stop()
    assert {fact.pid for fact in job.all(RankFound)} == pids
    assert not job.marked()


def test_the_command_itself_is_the_rank(job):
    job.python(SLEEPER, RANK=3)
    found = job.until(RankFound)
    assert (found.pid, found.rank, found.local_rank) == (job.until(Started).pid, 3, None)
    os.kill(found.pid, signal.SIGABRT)
    assert job.until(RankGone).code == job.until(CommandGone).code == -6


def test_a_launcher_with_a_rank_from_outside_is_no_rank(job, tmp_path):
    """Cluster operators set RANK for the whole container, and there torchrun is run by a shell."""
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(LAUNCHER)
    job.run(["sh", "-c", f"true; {sys.executable} -S {torchrun}; exit $?"], RANK=1, RANK_SCRIPT=SLEEPER)
    ranks = {job.until(RankFound, rank=rank, local_rank=rank).pid for rank in (0, 1)}
    job.stop()
    assert {fact.pid for fact in job.all(RankFound)} == ranks


def argument(pid, number):
    """One word of a process's command line; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[number]
    except (OSError, IndexError):
        return b""


def test_a_shell_with_a_rank_from_outside_runs_the_rank(job):
    job.shell(f"sleep 0.3; {sys.executable} -S -c '{SLEEPER}'; exit $?", RANK=0, WORLD_SIZE=1)

    def python_is_found():  # a `sleep` that takes long on a busy machine is taken for the rank before
        job.facts += job.running.read()
        return any(b"time.sleep" in argument(fact.pid, 3) for fact in job.all(RankFound))

    wait_for("the rank", python_is_found)
    assert job.until(Started).pid not in {fact.pid for fact in job.all(RankFound)}


def test_an_exec_that_comes_late_makes_a_rank(job):
    os.mkfifo(job.folder / "fifo")
    job.shell(f"read line < $NOTES/fifo; export RANK=0 LOCAL_RANK=0; exec {sys.executable} -S -c '{SLEEPER}'")
    pid = job.until(Started).pid
    started_s = time.monotonic()  # looked at several times before it execs
    wait_for("some looks", lambda: time.monotonic() - started_s > 0.5)
    (job.folder / "fifo").write_text("go\n")
    assert job.until(RankFound).pid == pid


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no shared memory here")
def test_shared_memory_of_killed_processes_is_removed(job):
    job.python(
        """
import os, time
name = "/dev/shm/torch_%d_holdfasttest_0" % os.getpid()
open(name, "w").write("x")
open(os.environ["NOTES"] + "/segment", "w").write(name + "\\n")
time.sleep(600)
"""
    )
    segment = Path(job.note("segment"))
    foreign = Path("/dev/shm/torch_1_holdfasttest_0")
    foreign.write_text("x")
    try:
        job.stop(grace_s=0.0)
        assert not segment.exists()
        assert foreign.exists()
    finally:
        foreign.unlink()


def test_it_keeps_no_descriptor_of_what_is_over(job):
    os.mkfifo(job.folder / "fifo")
    job.python(
        """
import os, subprocess, sys
for n in range(20):
    subprocess.run(["sleep", "0.03"], env={**os.environ, "RANK": str(n), "LOCAL_RANK": "0"})
open(os.environ["NOTES"] + "/ready", "w").write("yes\\n")
sys.stdin = open(os.environ["NOTES"] + "/fifo")
sys.stdin.read()
"""
    )
    folder = Path(f"/proc/{job.until(Started).reaper}/fd")
    job.note("ready")
    wait_for("the last rank's end", lambda: not any("pidfd" in _target(fd) for fd in folder.iterdir()))
    for _ in range(5):
        other = launch.attach(job.folder)
        wait_for("an answer", other.read)
        other.close()
    wait_for("closed connections", lambda: len(list(folder.iterdir())) <= 12)


def _target(fd):
    """Empty where it has been closed meanwhile: it looks around all the time."""
    try:
        return os.readlink(fd)
    except FileNotFoundError:
        return ""


def test_a_full_disk_costs_the_file_only(job):
    (job.folder / launch.FACTS).symlink_to("/dev/full")
    job.shell("exit 3")
    assert job.until(CommandGone).code == 3
    assert job.stop().left == ()


def test_a_rank_whose_parent_waits_for_it(job):
    """The parent may collect it first: then only a kernel of 6.15 or later still knows its code."""
    job.python(
        "import os, subprocess, sys\n"
        "argv = [sys.executable, '-S', '-c', os.environ['RANK_SCRIPT']]\n"
        "for n in range(5):\n"
        "    subprocess.run(argv, env={**os.environ, 'RANK': str(n), 'LOCAL_RANK': '0'})\n",
        RANK_SCRIPT=SLEEPER,
    )
    codes = []
    for rank in range(5):
        os.kill(job.until(RankFound, rank=rank).pid, signal.SIGKILL)
        codes.append(job.until(RankGone, rank=rank).code)
    release = tuple(int(word) for word in os.uname().release.split("-")[0].split(".")[:2])
    assert set(codes) <= ({-9} if release >= (6, 15) else {-9, None})

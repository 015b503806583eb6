"""What a command leaves running, and Holdfast as process 1 of a container."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from run.place import state, wait_for

LEAVES_A_DAEMON = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(os.environ["NOTES"] + "/daemon", "w").write(f"{os.getpid()}\\n")
        while True: signal.pause()
    os._exit(0)
os.wait()
while not os.path.exists(os.environ["NOTES"] + "/daemon"): pass
"""
LEAVES_ITS_RANKS = """
import os, time
for rank in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sh", ["sh", "-c",
                'touch $NOTES/begun-$RANK; while [ ! -e $NOTES/go ]; do sleep 0.05; done; echo rank $RANK done; [ $RANK = 0 ] || exit $(cat $NOTES/go)'],
                os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"})
        os._exit(0)
os.wait(); os.wait()
while not all(os.path.exists(f"{os.environ['NOTES']}/begun-{rank}") for rank in range(2)): time.sleep(0.05)
time.sleep(1.0)
print("launcher is done", flush=True)
"""


def root_with_namespaces():
    tool = shutil.which("unshare")
    return bool(tool) and subprocess.run(
        [tool, "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False
    ).returncode == 0  # fmt: skip


needs_namespaces = pytest.mark.skipif(
    not root_with_namespaces(), reason="needs to make a PID namespace (root): unshare --pid --fork"
)
AS_PROCESS_1 = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def go(place, code):
    part = place.path / "part"
    part.write_text(f"{code}\n")
    part.rename(place.path / "go")


def test_a_daemon_left_by_a_command_that_ended_well_is_ended(place):
    run = place.python(LEAVES_A_DAEMON, "--grace", "500ms")
    assert run.code() == 0
    place.nothing_left()
    assert f"left processes running: {place.note('daemon')} (python" in run.err, run.err


def test_a_command_that_leaves_its_ranks_is_waited_for(place):
    run = place.python(LEAVES_ITS_RANKS).prints("launcher is done")
    run.says("Holdfast waits for them")
    go(place, 0)
    assert run.code() == 0
    assert "rank 0 done" in run.out
    assert "rank 1 done" in run.out
    place.nothing_left()


def test_a_left_rank_that_fails_is_a_failure(place):
    run = place.python(LEAVES_ITS_RANKS).says("Holdfast waits for them")
    go(place, 5)
    assert run.code() == 5, run.err
    place.nothing_left()


def test_a_background_child_of_a_shell_does_not_outlive_the_run(place):
    run = place.shell("sleep 1000 & sleep 1001 & echo done")
    assert run.code() == 0
    place.nothing_left()


@needs_namespaces
def test_as_process_1_it_gives_back_the_code_and_collects_orphans(place):
    """Orphans of processes outside the command's own tree come to process 1, here by way of `docker exec`'s like."""
    run = place.start(
        "run",
        "--job",
        "t",
        "--",
        "sh",
        "-c",
        "(sleep 0.1 & sleep 0.2 &) ; sleep 0.5; exit 6",
        prefix=AS_PROCESS_1,
    )
    assert run.code() == 6, run.err
    place.nothing_left()


@needs_namespaces
def test_orphans_of_others_are_collected_by_process_1(place):
    """A process that somebody else brings into the namespace and leaves there."""
    run = place.start(
        "run", "--job", "t", "--", "sh", "-c", "echo ready; while [ ! -e $NOTES/go ]; do sleep 0.05; done",
        prefix=AS_PROCESS_1,
    ).prints("ready")  # fmt: skip
    inside = _child(run.pid)
    script = "sh -c 'echo $$ >$NOTES/orphan; sleep 0.3' & exit 0"
    enter = ["nsenter", f"--target={inside}", "--pid", "--mount", "sh", "-c", script]
    subprocess.run(enter, env=place.env, check=True)
    place.note("orphan")
    wait_for("no zombie of process 1", lambda: not [pid for pid in _children(inside) if state(pid) == "Z"])
    (place.path / "go").touch()
    assert run.code() == 0


@needs_namespaces
def test_signals_work_as_process_1(place):
    script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    run = place.start("run", "--job", "t", "--", "sh", "-c", script, prefix=AS_PROCESS_1).prints("ready")
    os.kill(_child(run.pid), signal.SIGTERM)
    assert run.code() == 9
    assert "got it" in run.out


@needs_namespaces
def test_a_command_that_daemonises_everything_under_process_1(place):
    words = ("--grace", "500ms", "--", sys.executable, "-S", "-c", LEAVES_A_DAEMON)
    run = place.start("run", "--job", "t", *words, prefix=AS_PROCESS_1)
    assert run.code() == 0, run.err
    place.nothing_left()


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def _child(pid):
    return wait_for(f"a child of {pid}", lambda: _children(pid))[0]

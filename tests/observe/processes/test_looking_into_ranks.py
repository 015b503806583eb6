"""Real processes, looked into by the real py-spy, and by tools that misbehave."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.observe.processes import pyspy
from holdfast.observe.processes.pyspy import NO_TOOL, Ask, Collection, Sampling

WITHIN_S = 60.0
SLEEPS = "def inner():\n    print('ready', flush=True)\n    input()\ninner()\n"
LOOPS = "def loop():\n    print('ready', flush=True)\n    while True: pass\nloop()\n"
HOLDS_THE_GIL = (
    "import ctypes\ndef hold():\n    print('ready', flush=True)\n    ctypes.PyDLL(None).sleep(60)\nhold()\n"
)
THREADS = """import threading
def wait(): threading.Event().wait()
for number in range(50): threading.Thread(target=wait, name=f"t{number}", daemon=True).start()
print('ready', flush=True)
input()
"""
WITH_SHIM = """import faulthandler, json, os, signal, sys
folder = sys.argv[1]
number = signal.SIGUSR2
faulthandler.register(number, file=open(f"{folder}/rank-0.stacks", "ab"), all_threads=True, chain=False)
with open(f"{folder}/rank-0.shim.json", "w") as note:
    json.dump({"pid": os.getpid(), "stack_signal": int(number)}, note)
def wait_here():
    print("ready", flush=True)
    while sys.stdin.read(1): pass
wait_here()
"""


def slow_clock():
    """What takes milliseconds else may take seconds on a busy machine."""
    return time.monotonic() / 10


@pytest.fixture
def python(tmp_path):
    """python(program): a process of it that has printed "ready"."""
    started = []

    def start(program):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def tool(tmp_path):
    """tool(script): a program in place of py-spy; its fourth word is the pid it is asked for."""

    def write(script):
        path = tmp_path / "tool"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write


def one(pid, **how):
    (found,) = collected([Ask(0, pid)], **how)
    return found


def collected(asks, *, tool=None, **how):
    """As `collect` does it, by the slow clock."""
    collection = Collection(asks, WITHIN_S, tool=tool or pyspy.tool_path(), clock=slow_clock, **how)
    collection.start()
    while not collection.poll():
        time.sleep(0.005)
    return collection.result()


def functions(found):
    return [frame.rpartition(" ")[2] for frame in found.threads[0].frames]


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def comes_into(pid, wanted):
    """Whether it does, after it was looked into: a moment may pass until it goes on."""
    until_s = time.monotonic() + WITHIN_S
    while state(pid) != wanted and time.monotonic() < until_s:
        time.sleep(0.001)
    return state(pid) == wanted


def test_ranks_are_looked_into_in_the_order_asked(python):
    sleeps, loops, holds = python(SLEEPS), python(LOOPS), python(HOLDS_THE_GIL)
    found = collected([Ask(7, sleeps.pid), Ask(1, loops.pid), Ask(3, holds.pid)])
    assert [(seen.rank, seen.pid, seen.source, seen.why_not) for seen in found] == [
        (7, sleeps.pid, "py-spy", ""),
        (1, loops.pid, "py-spy", ""),
        (3, holds.pid, "py-spy", ""),
    ]
    assert [functions(seen)[0] for seen in found] == ["inner", "loop", "hold"]
    assert [seen.threads[0].holds_gil for seen in found[:2]] == [False, True]


def test_a_stopped_rank_is_read_and_left_stopped(python):
    process = python(SLEEPS)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    found = one(process.pid, native=True)
    assert (found.state, found.source, functions(found)) == ("T", "py-spy", ["inner", "<module>"])
    assert found.why_not == "no native frames: it is stopped"
    assert state(process.pid) == "T"


def test_the_main_thread_is_the_first_of_many(python):
    found = one(python(THREADS).pid)
    assert len(found.threads) == 51
    assert found.threads[0].is_main and functions(found) == ["<module>"]
    assert {thread.name for thread in found.threads[1:]} == {f"t{number}" for number in range(50)}


def test_native_frames_of_a_rank_that_sleeps_in_c(python):
    process = python(HOLDS_THE_GIL)
    found = one(process.pid, native=True)
    assert (found.source, found.why_not) == ("native", "")
    assert any(":native " in frame for frame in found.threads[0].frames[:3])
    assert comes_into(process.pid, "S")


def test_a_rank_that_is_gone_and_one_that_is_no_python():
    with subprocess.Popen(["sleep", "60"]) as other, subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        zombie, no_python = collected([Ask(0, ended.pid), Ask(1, other.pid)])
        other.kill()
    assert (zombie.state, zombie.source, zombie.why_not) == ("Z", "", "the process has ended")
    assert (no_python.source, no_python.why_not) == ("", "py-spy recognises no Python interpreter in it")
    assert one(ended.pid).why_not == "the process has ended"


def test_a_rank_that_goes_during_the_collection(python, tool):
    process = python(SLEEPS)
    found = one(
        process.pid, tool=tool('kill -9 "$5"; while kill -0 "$5" && ! grep -q Z "/proc/$5/stat"; do :; done')
    )
    assert found.why_not == "the process has ended"


def test_faulthandler_answers_where_py_spy_does_not(python, tmp_path, tool):
    ask = Ask(0, python(WITH_SHIM).pid, tmp_path)
    for how in (
        {"tool": tool("echo 'Error: no luck today.' >&2; exit 1"), "signal_first": False},
        {"tool": tool("exit 1"), "signal_first": True},
        {"tool": str(tmp_path / "absent")},
    ):
        (found,) = collected([ask], **how)
        assert (found.source, found.why_not, functions(found)[0]) == ("faulthandler", "", "wait_here")
        assert found.threads[0].is_main


def test_py_spy_is_missing(python, tmp_path):
    ask = Ask(0, python(WITH_SHIM).pid, tmp_path)
    work = [Collection([one], WITHIN_S, clock=slow_clock) for one in (ask, Ask(0, ask.pid))]
    for collection in work:
        collection.start()
        while not collection.poll():
            continue
    assert [collection.result()[0].source for collection in work] == ["faulthandler", ""]
    assert work[1].result()[0].why_not == NO_TOOL


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'Error: Failed to get stack traces' >&2; exit 1", "py-spy failed: Failed to get stack traces"),
        ("exit 3", "py-spy failed: it printed nothing"),
        ("echo '[{'", "py-spy failed: it printed nothing"),
        ("echo 'Permission denied (os error 13)' >&2", "forbidden"),
        ("echo 'Operation not permitted (os error 1)' >&2", "forbidden"),
    ],
)
def test_why_there_is_no_stack(python, tool, script, says):
    found = one(python(SLEEPS).pid, tool=tool(script))
    assert found.threads == () and found.source == ""
    assert says in found.why_not.replace("forbids", "forbidden")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_process_of_another_user():
    program = "import os; from holdfast.observe.processes.pyspy import forbidden; os.setuid(65534); print(forbidden(1))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "the process belongs to user 0: run this command as that user or as root\n"


def test_a_tool_that_hangs_is_given_up_and_nothing_of_it_is_left(python, tool):
    process = python(SLEEPS)
    now_s = [0.0]
    collection = Collection([Ask(0, process.pid)], 60, tool=tool("exec sleep 60"), clock=lambda: now_s[0])
    collection.start()
    assert not collection.poll()
    now_s[0] = pyspy.DUMP_S
    assert not collection.poll() or collection.result()
    while not collection.poll():
        continue
    (found,) = collection.result()
    assert (found.threads, found.why_not) == ((), "py-spy did not finish within 3 s")


def test_no_more_than_the_deadline_is_waited_for(python, tool):
    process = python(SLEEPS)
    now_s = [0.0]
    asks = [Ask(rank, process.pid) for rank in range(20)]
    collection = Collection(asks, 1.0, tool=tool("exec sleep 60"), clock=lambda: now_s[0])
    collection.start()
    assert not collection.poll()
    now_s[0] = 1.0
    assert collection.poll()
    assert {found.why_not for found in collection.result()} == {"no stacks within 1 s"}


def test_a_rank_that_a_killed_tool_has_left_stopped_goes_on(python, tool):
    process = python(LOOPS)
    collection = Collection(
        [Ask(0, process.pid)], WITHIN_S, native=True, tool=tool('kill -STOP "$5"; exec sleep 60')
    )
    collection.start()
    while state(process.pid) != "T":
        collection.poll()
    collection.close()
    os.waitid(os.P_PID, process.pid, os.WCONTINUED)
    assert comes_into(process.pid, "R")


def test_a_tool_killed_while_it_holds_a_busy_rank_lets_it_go(python):
    process = python(LOOPS)
    held, last_s = 0, time.monotonic() + WITHIN_S
    while held < 5 and time.monotonic() < last_s:  # on a busy machine it is often done before it is seen
        collection = Collection([Ask(0, process.pid)], WITHIN_S, native=True, tool=pyspy.tool_path())
        collection.start()
        while not collection.poll() and state(process.pid) != "t":
            continue
        held += state(process.pid) == "t"
        collection.close()
        assert comes_into(process.pid, "R")
    assert held


def test_sampling_tells_a_rank_that_stands_still():
    frames = []
    with subprocess.Popen([sys.executable, "-c", LOOPS], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        sampling = Sampling(
            Ask(0, process.pid), samples=4, over_s=0.02, tool=pyspy.tool_path(), clock=slow_clock
        )
        sampling.start()
        while not sampling.poll():
            continue
        frames = sampling.frames
        sampling.close()
        process.kill()
    named = {tuple(frame.rpartition(" ")[2] for frame in sample) for sample in frames}
    assert len(frames) == 4 and named == {("loop", "<module>")}


def test_sampling_of_a_process_that_is_gone():
    sampling = Sampling(Ask(0, 2**22 + 1), samples=3, over_s=0.01, tool=pyspy.tool_path())
    sampling.start()
    while not sampling.poll():
        continue
    assert (sampling.frames, sampling.why_not) == ([], "the process has ended")
    sampling.close()


def test_a_busy_agent_is_not_held_up(python):
    """No look takes long: a start of a tool is the longest, and it is shared out over looks."""
    process = python(THREADS)
    asks = [Ask(rank, process.pid) for rank in range(8)]
    collection = Collection(asks, WITHIN_S, tool=pyspy.tool_path(), clock=slow_clock)
    before = time.thread_time()
    collection.start()
    looks = 1
    while not collection.poll():
        looks += 1
    assert (time.thread_time() - before) / looks < 0.1
    assert all(len(found.threads) == 51 for found in collection.result())


BLOCKED = """import os, sys
print("ready", flush=True)
def spawn():
    opens = [(os.POSIX_SPAWN_OPEN, 0, sys.argv[1] + "/pipe", os.O_RDONLY, 0)]
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=opens)
spawn()
input()
"""


def test_a_rank_blocked_in_the_kernel_is_read_but_never_paused(python, tmp_path):
    """posix_spawn waits in state D until its child has opened a pipe that nobody writes."""
    os.mkfifo(tmp_path / "pipe")
    process = python(BLOCKED)
    until_s = time.monotonic() + WITHIN_S
    wait_channel = Path(f"/proc/{process.pid}/wchan")  # "0" while it is still on its way to sleep
    while (state(process.pid) != "D" or wait_channel.read_text() == "0") and time.monotonic() < until_s:
        continue
    found = one(process.pid, native=True)
    open(tmp_path / "pipe", "wb").close()
    assert (found.state, found.source, functions(found)) == ("D", "py-spy", ["spawn", "<module>"])
    assert found.why_not == "no native frames: a thread of the rank is blocked in the kernel (state D)"
    assert found.wait_channel
    if os.geteuid() == 0:
        assert any("vfork" in frame or "clone" in frame for frame in found.kernel_frames)

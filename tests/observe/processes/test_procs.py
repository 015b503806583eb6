"""Real processes, read through /proc."""

import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.processes import procs
from holdfast.observe.processes.procs import RankReader


@pytest.fixture
def child():
    """Starts Python programs that say "ready" once they are; ends them, with all below them, afterwards."""
    started = []

    def start(program):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()
        process.stdin.close()


def until(true, *, within_s=60):
    """Polls for an event; a test that waits in vain fails."""
    last_s = time.monotonic() + within_s
    while not (answer := true()):
        assert time.monotonic() < last_s, "waited in vain"
        os.sched_yield()
    return answer


IDLE = "import sys; print('ready', flush=True); sys.stdin.read()"
SPIN = "print('ready', flush=True)\nwhile True: pass"


def test_an_idle_process_waits_and_uses_nothing(child):
    process = child(IDLE)
    with RankReader(process.pid, 3) as reader:
        # On its way to sleep it is in state S already, and has no channel yet.
        sample = until(
            lambda: (one := reader.sample(1.0)).state == "S" and one.wait_channel not in ("", "0") and one
        )
        assert (sample.rank, sample.pid, sample.at_s) == (3, process.pid, 1.0)
        later = reader.sample(2.0, log_bytes=5, step=7)
        assert later.main_cpu_s == sample.main_cpu_s and later.io_bytes == sample.io_bytes
        assert (later.log_bytes, later.step) == (5, 7)


def test_a_loop_runs_on_its_main_thread(child):
    with RankReader(child(SPIN).pid, 0) as reader:
        first = reader.sample(0.0)
        sample = until(lambda: (one := reader.sample(1.0)).main_cpu_s > first.main_cpu_s + 0.05 and one)
        assert sample.tree_cpu_s > first.tree_cpu_s


def test_another_thread_shows_in_the_tree_only(child):
    program = """import threading, sys
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
print('ready', flush=True)
sys.stdin.read()"""
    with RankReader(child(program).pid, 0) as reader:
        first = reader.sample(0.0)
        sample = until(lambda: (one := reader.sample(1.0)).tree_cpu_s > first.tree_cpu_s + 0.2 and one)
        assert sample.main_cpu_s < first.main_cpu_s + 0.1


def test_stopped_and_running_again(child):
    process = child(IDLE)
    with RankReader(process.pid, 0) as reader:
        process.send_signal(signal.SIGSTOP)
        until(lambda: reader.sample(0.0).state == "T")
        process.send_signal(signal.SIGCONT)
        until(lambda: reader.sample(0.0).state == "S")


def test_an_ended_process_is_a_zombie_then_gone(child):
    process = child(IDLE)
    with RankReader(process.pid, 0) as reader:
        process.kill()
        until(lambda: reader.sample(0.0).state in "ZX")
        process.wait()
        sample = reader.sample(1.0)
        assert sample.state == "X" and sample.main_cpu_s is None and sample.io_bytes is None
    with RankReader(process.pid, 0) as reader:
        assert reader.sample(2.0).state == "X"
    assert reader.sample(3.0).state in "X?"  # closed: no error either


def test_writes_and_children_are_counted_and_stay_so_when_the_child_ends(child):
    program = """import subprocess, sys
print('ready', flush=True)
for line in sys.stdin:
    code = "f = open('/dev/null', 'wb', 0); [f.write(bytes(1 << 20)) for _ in range(50)]; sum(range(20 << 20)); input()"
    child = subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.PIPE)
    sys.stdin.readline()
    child.communicate(b'x')
    print('over', flush=True)"""
    process = child(program)
    with RankReader(process.pid, 0) as reader:
        first = reader.sample(0.0)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        during = until(
            lambda: (
                (one := reader.sample(1.0)).tree_cpu_s > first.tree_cpu_s + 0.03
                and one.io_bytes > first.io_bytes + (50 << 20)
                and one
            )
        )
        assert during.main_cpu_s < during.tree_cpu_s
        process.stdin.write(b"end\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"over\n"
        after = reader.sample(2.0)
        assert during.io_bytes <= after.io_bytes < during.io_bytes + (10 << 20)
        assert after.tree_cpu_s >= during.tree_cpu_s


def test_children_of_other_threads_and_grandchildren_are_found(child):
    program = """import subprocess, sys, threading
inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
threading.Thread(target=lambda: subprocess.run([sys.executable, '-c', inner])).start()
print('ready', flush=True)
sys.stdin.read()"""
    with RankReader(child(program).pid, 0) as reader:
        first = reader.sample(0.0)
        until(lambda: reader.sample(1.0).tree_cpu_s > first.tree_cpu_s + 0.5)


def test_many_children_are_read_in_turn_and_none_is_left_open(child):
    program = """import os, sys
for _ in range(40):
    if not os.fork():
        sys.stdin.buffer.raw.read(1); os._exit(0)
print('ready', flush=True)
sys.stdin.read()"""
    process = child(program)
    with RankReader(process.pid, 0) as reader:
        open_before = len(os.listdir("/proc/self/fd"))
        reader.sample(0.0)
        assert len(reader._below) == 40
        until(lambda: reader.sample(1.0) and all(one.state == "S" for one in reader._below.values()))
        assert len(os.listdir("/proc/self/fd")) == open_before


def test_children_are_distinguished_by_what_they_wait_for(child, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    program = f"""import os, sys, socket
ours, theirs = socket.socketpair()
named, name_it = os.pipe()
def fork(name, do):
    if not os.fork():
        with open('/proc/self/comm', 'w') as file:
            file.write(name)
        os.write(name_it, b'.')
        do()
    os.read(named, 1)
for _ in range(3):
    fork('pt_data_worker', lambda: open({str(tmp_path / "fifo")!r}).read())
fork('on a socket', lambda: theirs.recv(1))
def spin():
    while True: pass
fork('cc1plus', spin)
print('ready', flush=True)
sys.stdin.read()"""
    with RankReader(child(program).pid, 0) as reader:
        sample = until(
            lambda: (
                (one := reader.sample(0.0)).running_children == 1
                and len(one.child_channels) == 2
                and len(one.child_names) == 3
                and is_fifo(one.child_channels[0])  # the more frequent first, once all of them sleep
                and one
            )
        )
    assert sample.children == 5 and sample.blocked_children == 0
    assert sample.child_names[0] == "cc1plus"  # it runs; the others began within the same tick
    assert set(sample.child_names) == {"cc1plus", "on a socket", "pt_data_worker"}
    fifo, socket = sample.child_channels
    assert any(word in socket for word in ("unix", "sk", "schedule")) and socket != fifo


def is_fifo(channel):
    return any(word in channel for word in ("wait_for_partner", "fifo", "pipe"))  # by the kernel's version


def test_a_grandchild_shows_in_the_second_after_its_parent(child):
    program = """import os, sys
print('ready', flush=True)
sys.stdin.readline()
if not os.fork():
    if not os.fork():
        open('/proc/self/comm', 'w').write('ptxas')
    os.read(0, 1)
print('forked', flush=True)
sys.stdin.read()"""
    process = child(program)
    with RankReader(process.pid, 0) as reader:
        assert reader.sample(0.0).children == 0
        process.stdin.write(b"go\n")
        process.stdin.flush()
        until(lambda: "ptxas" in reader.sample(1.0).child_names)
        assert reader.sample(2.0).children == 2


def test_written_bytes_are_distinguished_from_read_ones(child, tmp_path):
    program = f"""import sys
print('ready', flush=True)
for line in sys.stdin:
    if line == 'read\\n':
        open('/dev/zero', 'rb', 0).read(8 << 20)
    else:
        open({str(tmp_path / "checkpoint")!r}, 'wb', 0).write(bytes(8 << 20))
    print('done', flush=True)"""
    process = child(program)

    def after(word):
        process.stdin.write(word + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"done\n"
        return reader.sample(0.0)

    with RankReader(process.pid, 0) as reader:
        first = reader.sample(0.0)
        read = after(b"read")
        assert read.io_bytes >= first.io_bytes + (8 << 20)
        assert read.write_bytes < first.write_bytes + (1 << 20)
        written = after(b"write")
        assert written.write_bytes >= read.write_bytes + (8 << 20)
        assert written.disk_write_bytes >= read.disk_write_bytes  # a file system in memory counts nothing


def test_a_tracer_shows_while_the_rank_runs(child):
    rank = child(IDLE)
    program = f"""import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE = 0x4206
sys.exit(7) if libc.ptrace(SEIZE, {rank.pid}, None, None) else None
print('ready', flush=True)
sys.stdin.read()"""
    with RankReader(rank.pid, 0) as reader:
        assert reader.sample(0.0).traced is False
        tracer = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            if tracer.stdout.readline() != b"ready\n":
                pytest.skip("this machine does not let one process trace another")
            sample = reader.sample(1.0)
            assert sample.traced is True and sample.state in "SR"
        finally:
            tracer.communicate()
        assert reader.sample(2.0).traced is False


HIDDEN = """import os, subprocess, sys, time
from holdfast.observe.processes.procs import RankReader
subprocess.run(["mount", "-t", "proc", "-o", sys.argv[1], "proc", "/proc"], check=True)
roots = int(sys.argv[2])
def leave_root():
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
ready, wait = os.pipe(), os.pipe()
own = os.fork()
if not own:
    os.close(wait[1])
    leave_root()  # the kernel makes it one that none but root may trace
    os.write(ready[1], b"r")
    os.read(wait[0], 1)
    os._exit(0)
os.read(ready[0], 1)
leave_root()
for pid in (roots, own, 2 ** 22 + 1):
    with RankReader(pid, 0) as reader:
        for _ in range(2):
            one = reader.sample(0.0)
        print(one.state, one.io_bytes, one.write_bytes, one.children, sep=",")
os.close(wait[1])
os.waitpid(own, 0)
"""


@pytest.mark.parametrize("option", ["hidepid=0", "hidepid=1", "hidepid=2"])
def test_what_proc_hides_is_not_known_and_not_gone(child, option):
    kernel = tuple(int(part) for part in os.uname().release.split(".")[:2])
    if os.geteuid() != 0 or kernel < (5, 8):
        pytest.skip("needs root, and a kernel (5.8) where one mount of /proc can hide what others show")
    other = child(IDLE)
    ran = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", HIDDEN, option, str(other.pid)],
        capture_output=True,
        text=True,
    )
    if ran.returncode != 0 and "mount" in ran.stderr:
        pytest.skip(f"cannot mount /proc here: {ran.stderr.strip().splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    of_root, not_to_be_traced, never = (line.split(",") for line in ran.stdout.splitlines())
    assert of_root[0] in ("RS" if option == "hidepid=0" else "?") and of_root[1:] == ["None", "None", "0"]
    assert not_to_be_traced[0] in "RS?" and not_to_be_traced[1] == "None"
    assert never[0] == "X"


def test_a_pid_that_never_was_is_gone():
    with open("/proc/sys/kernel/pid_max") as file:
        never = int(file.read()) + 1
    with RankReader(never, 0) as reader:
        assert reader.sample(0.0).state == "X"


def test_nothing_is_left_open(child):
    process = child(IDLE)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with RankReader(process.pid, 0) as reader:
            reader.sample(0.0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_names_with_brackets_and_blanks():
    text = b"8421 (a) R (b c)) S 1 2 3 4 5 6 7 8 9 10 250 50 30 20 20 0 5 0 777 1 2 3"
    stat = procs.parse_stat(text)
    assert stat is not None and stat.state == "S" and stat.started == 777
    assert stat.name == "a) R (b c)"
    assert stat.own_cpu_s == 300 / procs.TICKS_PER_S and stat.reaped_cpu_s == 50 / procs.TICKS_PER_S


def test_a_list_of_children_that_was_cut_loses_its_last():
    text = (b"12345 " * 1000)[: procs.READ_BYTES_MAX]
    assert set(procs.parse_children(text)) == {12345}
    assert procs.parse_children(b"1 2 ") == [1, 2]


def test_sums_of_io_and_tracers_are_read_as_the_kernel_writes_them():
    text = (
        b"rchar: 5\nwchar: 7\nsyscr: 1\nsyscw: 1\nread_bytes: 20\nwrite_bytes: 30\ncancelled_write_bytes: 0\n"
    )
    assert procs.parse_io(text) == (12, 50, 7, 30)
    assert procs.parse_traced(b"Name:\tx\nPPid:\t1\nTracerPid:\t0\nUid:\t0\n") is False
    assert procs.parse_traced(b"Name:\tx\nPPid:\t1\nTracerPid:\t12\nUid:\t0\n") is True
    assert procs.parse_traced(b"") is None


@given(st.binary(max_size=300))
def test_no_text_of_proc_raises(text):
    procs.parse_stat(text)
    procs.parse_stat(b"1 (x) " + text)
    procs.parse_io(text)
    procs.parse_children(text)
    procs.parse_wait_channel(text)
    procs.parse_traced(text)


BESIDE = """
import sys, threading, time
def spin():
    print("ready", flush=True)
    print(threading.get_native_id(), flush=True)
    until_s = time.thread_time() + 0.5
    while time.thread_time() < until_s:
        pass
    sys.stdin.readline()
one = threading.Thread(target=spin)
one.start()
one.join()
sys.stdin.read()
"""


def test_the_thread_that_counts_is_read_in_place_of_the_main_one(child):
    process = child(BESIDE)
    thread = int(process.stdout.readline())
    with RankReader(process.pid, 0) as reader:
        first = reader.sample(0.0)  # after Python's start, which is of the main thread
        until(lambda: (reader.sample(1.0, thread=thread).main_cpu_s or 0) >= 0.4)
        # Its state and its wait channel are read one after the other, and it waits for the GIL now and then.
        pipes = ("pipe_", "anon_pipe_")
        sample = until(
            lambda: (
                (one := reader.sample(1.0, thread=thread)).state == "S"
                and one.wait_channel.startswith(pipes)
                and one
            )
        )
        assert sample.thread == thread
        main = until(lambda: (one := reader.sample(2.0)).wait_channel.startswith("futex") and one)
        assert main.thread == 0 and main.main_cpu_s < first.main_cpu_s + 0.3
        reader.sample(3.0, thread=thread)
        process.stdin.write(b"on\n")
        process.stdin.flush()
        until(lambda: not os.path.exists(f"/proc/{process.pid}/task/{thread}"))
        assert reader.sample(4.0, thread=thread).thread == 0

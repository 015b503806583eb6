"""Commands, terminals and looks at stacks, carried out by an agent's Calls: real processes, real terminals."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from agent.running import is_over, wait_for, wait_for_environ
from holdfast.agent.calls.on_node import CALLS_MAX, Calls, CallScene
from holdfast.model.calls import (
    BeginCall,
    CallEnded,
    CancelCall,
    Output,
    OutputTaken,
    Program,
    StackLook,
    Terminal,
    Typed,
    TypedTaken,
    WindowSize,
)
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.model.nodes.workers import SampleStacks
from holdfast.parsers.call_words import decode, encode

WAIT_S = 60.0
STACK_TRIES_MAX = 20


class Node:
    """An agent's Calls, the wheel that turns them, and what they said."""

    def __init__(self, folder=None, env=None):
        self.said = []
        self.takes = self.has_room = True
        env = {"PATH": os.environ["PATH"], "HOME": "/"} | (env or {})
        self.calls = Calls(lambda: CallScene("node-7", folder, env, "/"), self._hear)

    def _hear(self, body):
        if not self.has_room:
            return False
        word = decode(body)
        self.said.append(word)
        if isinstance(word, Output) and self.takes:
            taken = len(self.output(word.call))
            self.tell(OutputTaken(call=word.call, node="node-7", total_bytes=taken))
        return True

    def tell(self, word):
        assert self.calls.hear(encode(word))

    def begin(self, what, call="c1", **more):
        self.tell(BeginCall(call=call, what=what, worker=2, attempt=1, **more))

    def run(self, *command, call="c1", **more):
        self.begin(Program(command=command, **more), call)
        return self.ended(call)

    def output(self, call="c1"):
        return b"".join(word.data for word in self.said if isinstance(word, Output) and word.call == call)

    def ended(self, call="c1"):
        return self.until(
            "its end",
            lambda: next((w for w in self.said if isinstance(w, CallEnded) and w.call == call), None),
        )

    def until(self, what, is_true):
        until_s = time.monotonic() + WAIT_S
        while not (answer := is_true()):
            assert time.monotonic() < until_s, f"waited for {what}; so far {self.said[-5:]}"
            select.select(self.calls.channels(), [], [], 0.01)
            self.calls.turn()
        return answer


@pytest.fixture
def node(tmp_path):
    nodes = []

    def made(*args, **more):
        nodes.append(Node(*args, **more))
        return nodes[-1]

    yield made
    for one in nodes:
        one.calls.close()
        one.until("nothing being left", lambda one=one: one.calls.is_idle)


# Commands


def test_a_command_its_output_and_its_code(node):
    one = node()
    ended = one.run("sh", "-c", "echo out; echo err >&2; cat; exit 3")
    assert one.output() == b"out\nerr\n"
    assert (ended.outcome, ended.code, ended.worker, ended.node) == ("exited", 3, 2, "node-7")
    assert 0 < ended.took_s < WAIT_S


def test_a_command_that_is_not_there_and_one_that_may_not_be_run(node, tmp_path):
    one = node()
    ended = one.run("no-such-program")
    assert (ended.outcome, ended.code, ended.why) == (
        "exited",
        127,
        "no-such-program: No such file or directory",
    )
    (tmp_path / "plain").write_text("x")
    ended = one.run(str(tmp_path / "plain"), call="c2")
    assert (ended.code, "Permission denied" in ended.why) == (126, True)


def test_a_command_killed_by_a_signal(node):
    assert node().run("sh", "-c", "kill -9 $$").code == -9


def test_a_command_that_never_ends_is_ended_with_all_that_it_began(node, tmp_path):
    pids = tmp_path / "pids"
    pids.touch()
    script = f"setsid sleep inf & echo $! >> {pids}; trap '' TERM; (sleep inf & echo $! >> {pids}; wait); sleep inf"
    one, limit_s, begun = node(), 1.0, 0
    while begun < 2:  # on a busy machine the limit may pass before it has begun both
        limit_s *= 2
        before = len(pids.read_text().split())
        ended = one.run("sh", "-c", script, call=f"within {limit_s} s", limit_s=limit_s)
        assert (ended.outcome, ended.why) == ("timed-out", "")
        left = [int(pid) for pid in pids.read_text().split()]
        assert all(is_over(pid) for pid in left)
        begun = len(left) - before


def test_a_command_that_prints_for_ever_is_cut_and_ended(node):
    one = node()
    ended = one.run("yes", output_bytes_max=10_000)
    assert (ended.outcome, len(one.output())) == ("ran-away", 10_000)
    assert ended.cut_bytes > 60 << 20


def test_a_long_output_comes_whole_within_its_window(node):
    one = node()
    one.takes = False
    one.begin(Program(command=("head", "-c", "300000", "/dev/zero")), window_bytes=8192)
    one.until("a full window", lambda: len(one.output()) == 8192)
    for _ in range(3):
        one.calls.turn()
    assert len(one.output()) == 8192
    one.takes = True
    one.tell(OutputTaken(call="c1", node="node-7", total_bytes=8192))
    assert (one.ended().cut_bytes, len(one.output())) == (0, 300_000)


def test_a_link_without_room_loses_nothing(node):
    one = node()
    one.begin(Program(command=("sh", "-c", "seq 1 20000")))
    one.until("some of it", one.output)
    one.has_room = False
    for _ in range(20):
        one.calls.turn()
    one.has_room = True
    assert (one.ended().outcome, one.output()) == (
        "exited",
        b"".join(b"%d\n" % number for number in range(1, 20001)),
    )


def test_what_a_command_leaves_behind_is_ended(node, tmp_path):
    one = node()
    ended = one.run("sh", "-c", f"sleep inf & echo $! > {tmp_path}/pid; echo done")
    assert (ended.outcome, ended.code, one.output()) == ("exited", 0, b"done\n")
    assert is_over(int((tmp_path / "pid").read_text()))


def test_a_call_that_is_cancelled(node):
    one = node()
    one.begin(Program(command=("sh", "-c", "echo here; sleep inf")))
    one.until("its output", lambda: one.output() == b"here\n")
    one.tell(CancelCall(call="c1"))
    assert one.ended().outcome == "cancelled"


def test_a_lost_connection_ends_what_it_asked_for(node, tmp_path):
    one = node()
    one.begin(Program(command=("sh", "-c", "echo $$; exec sleep inf")))
    pid = int(one.until("its pid", one.output))
    one.calls.lost()
    assert one.calls.channels() == []
    wait_for("its end", lambda: is_over(pid))


def test_a_killed_agent_leaves_no_command_behind(tmp_path):
    script = """
import sys, time
from holdfast.agent.calls.on_node import Calls, CallScene
from holdfast.model.calls import BeginCall, Program
from holdfast.parsers.call_words import encode
calls = Calls(lambda: CallScene("n", None, {"PATH": sys.argv[2]}, "/"), lambda body: True)
words = ("sh", "-c", f"echo $$ > {sys.argv[1]}.part; mv {sys.argv[1]}.part {sys.argv[1]}; sleep inf")
calls.hear(encode(BeginCall(call="c", what=Program(command=words), worker=0, attempt=1)))
while True:
    calls.turn()
    time.sleep(0.01)
"""
    pid_file = tmp_path / "pid"
    agent = subprocess.Popen([sys.executable, "-c", script, str(pid_file), os.environ["PATH"]])
    try:
        wait_for("the command", pid_file.exists)
    finally:
        agent.kill()
        agent.wait()
    wait_for("its end", lambda: is_over(int(pid_file.read_text())))


def test_commands_run_after_the_training_and_go_first_when_memory_runs_out(node):
    one = node()
    one.run("sh", "-c", "cut -d' ' -f19 /proc/$$/stat; cat /proc/$$/oom_score_adj")
    nice, score = map(int, one.output().split())
    assert nice >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    assert score == 700


def test_more_calls_than_a_node_carries_out_are_refused(node):
    one = node()
    for number in range(CALLS_MAX):
        one.begin(Program(command=("sleep", "inf")), f"c{number}")
    ended = one.run("true", call="one-more")
    assert (ended.outcome, ended.why) == ("not-started", f"{CALLS_MAX} calls already run on this node")


@pytest.mark.parametrize("command", [(), ("",), ("a\0b",)])
def test_what_is_no_command(node, command):
    assert node().run(*command).outcome == "not-started"


def test_words_of_others_are_left_to_others(node):
    one = node()
    assert not one.calls.hear(encode(SampleStacks(attempt=1)))
    assert one.calls.hear(b"\x81\xa4kind\xaecall-of-later\xa4")
    one.tell(Typed(call="nobody's", data=b"x"))
    one.calls.turn()
    assert one.said == []


# Surroundings


@pytest.fixture
def training(tmp_path):
    """A worker's folder with a command that runs in it, as the reaper notes it."""
    folder, cwd = tmp_path / "worker-2", tmp_path / "code"
    folder.mkdir()
    cwd.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "CUDA_VISIBLE_DEVICES": "3,4",
        "HOLDFAST_JOB": "llama",
        "HOLDFAST_WORKER_DIR": str(folder),
        "HOLDFAST_SHIM": "1",
        "NCCL_DEBUG_FILE": f"{folder}/nccl.log",
        "RANK": "5",
        "PET_MASTER_PORT": "29500",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
    }
    process = subprocess.Popen(["sleep", "inf"], env=env, cwd=cwd)
    wait_for_environ(process.pid)
    fact = {"kind": "started", "t": time.time(), "n": 1, "pid": process.pid, "reaper": 1}
    (folder / "reaper.jsonl").write_bytes(msgspec.json.encode(fact) + b"\n")
    yield folder
    process.kill()
    process.wait()


def test_a_command_runs_in_the_trainings_folder_and_environment_less_what_is_the_trainings_alone(
    node, training
):
    one = node(training, {"OWN": "agent's"})
    one.run("sh", "-c", "pwd; env")
    cwd, *lines = one.output().decode().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert cwd == str(training.parent / "code")
    assert found["CUDA_VISIBLE_DEVICES"] == "3,4"
    assert (found["HOLDFAST_JOB"], found["MASTER_ADDR"]) == ("llama", "10.0.0.1")
    assert found["HOLDFAST_WORKER_DIR"] == f"{training}/"
    gone = {"OWN", "RANK", "MASTER_PORT", "PET_MASTER_PORT", "HOLDFAST_SHIM", "NCCL_DEBUG_FILE"}
    assert not gone & set(found)


def test_where_no_training_runs_the_agents_own_surroundings_do(node, tmp_path):
    one = node(tmp_path, {"OWN": "agent's"})
    one.run("sh", "-c", "pwd; echo $OWN")
    assert one.output() == b"/\nagent's\n"


# Terminals


def terminal(one, *command, **more):
    one.begin(Terminal(command=command, **more))
    return one


def typed(one, data):
    one.tell(Typed(call="c1", data=data))


def test_a_terminal_shows_what_is_typed_and_ends_with_its_code(node):
    one = terminal(node(), "sh", term="vt100", rows=33, columns=101)
    typed(one, b"echo $((6*7)) $TERM; stty size; tty\n")
    one.until("the answer", lambda: b"42 vt100\r\n33 101\r\n/dev/pts/" in one.output())
    one.tell(WindowSize(call="c1", rows=20, columns=50))
    typed(one, b"stty size\n")
    one.until("the new size", lambda: b"20 50\r\n" in one.output())
    typed(one, b"exit 5\n")
    assert (one.ended().outcome, one.ended().code) == ("exited", 5)
    assert [word.total_bytes for word in one.said if isinstance(word, TypedTaken)][-1] == 53


def test_an_interrupt_goes_to_what_runs_in_front(node):
    one = terminal(node(), "sh")
    typed(one, b"sleep inf; echo af''ter $?\n")
    one.until("the echo", lambda: b"sleep inf" in one.output())
    wait_for("the sleep", lambda: b"sleep\0inf" in _commands_below(os.getpid()))
    typed(one, b"\x03")
    typed(one, b"echo st''ill here\n")
    one.until("the prompt", lambda: b"still here" in one.output())
    typed(one, b"\x04")
    one.ended()


def _commands_below(pid):
    found = b""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            found += Path(f"/proc/{child}/cmdline").read_bytes() + _commands_below(int(child))
        except OSError:
            continue
    return found


def test_a_terminal_whose_asker_is_gone_ends(node):
    one = terminal(node(), "sh", "-c", "echo $$; sleep inf")
    pid = int(one.until("its pid", lambda: one.output().strip()))
    one.calls.lost()
    wait_for("its end", lambda: is_over(pid))


def test_a_terminal_shows_no_more_than_is_taken(node):
    one = node()
    one.takes = False
    terminal(one, "yes")
    one.until("a full window", lambda: len(one.output()) >= 65536)
    for _ in range(3):
        one.calls.turn()
    assert len(one.output()) == 65536
    assert len(one.calls.channels()) == 1  # it waits for the command's end alone: no turning on the spot
    one.tell(CancelCall(call="c1"))
    one.takes = True
    one.tell(OutputTaken(call="c1", node="node-7", total_bytes=65536))
    assert one.ended().outcome == "cancelled"


def test_the_shell_is_the_users_own(node):
    one = terminal(node(env={"SHELL": "/bin/sh"}))
    typed(one, b"echo $0\n")
    one.until("its name", lambda: b"/bin/sh\r\n" in one.output())
    typed(one, b"exit\n")
    one.ended()


# Stacks


def test_stacks_of_the_ranks_of_the_worker(node, tmp_path):
    script = "def wait_here(): print('ready', flush=True); input()\nwait_here()"
    ranks = [
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for rank in ranks:
            assert rank.stdout.readline() == b"ready\n"
        facts = [
            {"kind": "rank-started", "t": time.time(), "pid": rank.pid, "rank": 16 + number}
            for number, rank in enumerate(ranks)
        ]
        (tmp_path / "reaper.jsonl").write_bytes(b"".join(msgspec.json.encode(fact) + b"\n" for fact in facts))
        one = node(tmp_path)
        for number in range(STACK_TRIES_MAX):
            call = f"c{number}"
            one.begin(StackLook(ranks=(17, 99)), call)
            assert one.ended(call).outcome == "exited"
            (found,) = msgspec.msgpack.decode(one.output(call), type=tuple[RankStacks, ...])
            if found.threads:  # py-spy may have no time, on a busy machine
                break
        assert (found.rank, found.pid) == (17, ranks[1].pid)
        assert any("wait_here" in frame for frame in found.threads[0].frames)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            rank.stdin.close()
            rank.stdout.close()


def test_a_watcher_that_is_killed_takes_its_command_along(node):
    one = node()
    one.begin(Program(command=("sh", "-c", "echo $$ $PPID; exec sleep inf")))
    pid, watcher = map(int, one.until("its pids", one.output).split())
    os.kill(watcher, signal.SIGKILL)
    ended = one.ended()
    assert (ended.outcome, ended.why) == ("not-started", "the process that supervised the command was killed")
    wait_for("its end", lambda: is_over(pid))

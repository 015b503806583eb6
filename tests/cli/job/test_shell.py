"""`holdfast shell` in a real terminal, on a node of a job that a real hub connects."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.running import is_over, wait_for
from holdfast.cli.job.shell import Escape

HOLDFAST = Path(sys.executable).with_name("holdfast")
WAIT_S = 60.0


class Screen:
    """A terminal with `holdfast shell` in it, and what it has shown."""

    def __init__(self, *words, rows=30, columns=90):
        self._master, slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.shown = b""
        self.process = subprocess.Popen(
            [str(HOLDFAST), "shell", *words], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )

    def resize(self, rows, columns):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, data):
        os.write(self._master, data)

    def until(self, pattern):
        """The first match of it in what is shown from now on."""
        until_s = time.monotonic() + WAIT_S
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < until_s, f"waited for {pattern!r} in {self.shown[-2000:]!r}"
            self._read()
        self.shown = self.shown[found.end() :]
        return found

    def code(self):
        wait_for("its end", lambda: (self._read(), self.process.poll() is not None)[1])
        return self.process.returncode

    def wait_for_more(self):
        assert select.select([self._master], [], [], WAIT_S)[0], "nothing more is shown"
        self._read()

    def mode(self):
        return termios.tcgetattr(self._slave)

    def _read(self):
        if select.select([self._master], [], [], 0.02)[0]:
            self.shown += os.read(self._master, 1 << 16)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@pytest.fixture
def screen():
    made = []

    def make(*words, **more):
        made.append(Screen(*words, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def shell(nodes, screen):
    """A shell on worker 1 of a job of two, at its prompt. The terminal is not told which shell the node's user has."""
    job = nodes(2)
    one = screen("llama", "--worker", "1", "--", "/bin/sh")
    one.job = job
    one.until(rb"worker 1 on node-1; ~\. on a new line leaves it\r\n")
    one.until(rb"\$ ")
    return one


def test_a_shell_from_its_prompt_to_its_exit_code(shell):
    shell.type(b"echo $NODE $((6*7)); stty size\r")
    shell.until(rb"\r\nnode-1 42\r\n30 90\r\n")
    shell.resize(20, 50)
    os.kill(shell.process.pid, signal.SIGWINCH)
    shell.type(
        b"until stty size | grep '^20 '; do sleep 0.05; done\r"
    )  # the size does not come as a key does
    shell.until(rb"20 50\r\n")
    shell.type(b"exit 5\r")
    assert shell.code() == 5
    assert shell.mode() == shell.before
    ((kind, text),) = shell.job.notes
    assert kind == "shell" and text.endswith(" on worker 1: /bin/sh")


def test_what_was_typed_ahead_is_not_thrown_away(nodes, screen):
    nodes(2)
    one = screen("llama", "--worker", "1", "--", "/bin/sh")
    one.type(b"echo typed a''head; exit 6\n")  # long before the other side is there
    one.until(rb"typed ahead")
    assert one.code() == 6


def test_an_interrupt_is_for_the_other_side(shell):
    shell.type(b"echo pid=$$; sleep inf; echo st''opped\r")
    pid = int(shell.until(rb"pid=(\d+)\r")[1])
    wait_for("sleep", lambda: b"sleep\0inf\0" in list(_commands_of(pid)))
    shell.type(b"\x03")
    shell.type(b"echo st''ill here\r")
    shell.until(rb"still here")
    shell.type(b"\x04")
    assert shell.code() == 0


def _commands_of(pid):
    """What this shell runs now: other tests have such commands, too."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            yield Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue


def test_a_client_that_is_killed_takes_the_shell_along(shell):
    shell.type(b"echo pid=$$; sleep inf\r")
    pid = int(shell.until(rb"pid=(\d+)\r")[1])
    shell.process.kill()
    wait_for("the shell's end", lambda: is_over(pid))


def test_a_client_that_is_ended_leaves_its_terminal_in_order(shell):
    shell.process.terminate()
    assert shell.code() == 128 + signal.SIGTERM
    assert shell.mode() == shell.before


def test_the_way_out(shell):
    shell.type(b"echo pid=$$; sleep inf\r")
    pid = int(shell.until(rb"pid=(\d+)\r")[1])
    shell.type(b"~.")
    assert shell.code() == 1
    assert shell.mode() == shell.before
    wait_for("the shell's end", lambda: is_over(pid))


def test_much_output_comes_whole(shell):
    shell.type(b"head -c 1000000 /dev/zero | tr '\\0' x; echo; echo th''at was all\r")
    shell.until(rb"was all\r\n")
    shown = 0
    while not (found := re.search(rb"\nthat was all", shell.shown[-100:])):
        shown += shell.shown.count(b"x")
        shell.shown = shell.shown[-20:].replace(b"x", b"")
        shell.wait_for_more()
    assert found
    assert shown + shell.shown.count(b"x") == 1_000_000
    shell.type(b"exit\r")
    shell.code()


def test_a_controller_that_goes_away(shell):
    shell.job.ends("job llama has ended")
    shell.until(rb"holdfast: job llama has ended\r\n")
    assert shell.code() == 1
    assert shell.mode() == shell.before


def test_one_worker_needs_no_name_and_several_do(nodes, screen):
    nodes(2)
    one = screen("llama")
    one.until(rb"holdfast: job llama has 2 workers: select one with --worker\r\n")
    assert one.code() == 1


def test_a_spare_by_its_name(nodes, screen):
    nodes(1, spares=1)
    one = screen("llama", "--node", "node-1", "--", "sh", "-c", "echo on $NODE")
    one.until(rb"on node-1\r\n")
    assert one.code() == 0


def test_a_shell_that_cannot_be_had(nodes, screen, holdfast):
    nodes(1)
    one = screen("llama", "--", "no-such-shell")
    one.until(rb"no-such-shell: No such file or directory")
    assert one.code() == 127
    code, _, err = holdfast("shell", "llama")
    assert (code, err) == (
        2,
        "holdfast: a shell needs a terminal; to run a command use holdfast exec llama -- COMMAND\n",
    )


@given(st.lists(st.sampled_from([b"a", b"~", b"~~", b".", b"\r", b"ab~.", b"\r~", b"~x", b"."]), max_size=12))
def test_however_it_is_cut_the_way_out_is_found_at_the_start_of_a_line_alone(pieces):
    whole = b"".join(pieces)
    out, escape = b"", Escape()
    for piece in pieces:
        if not escape.is_found:
            out += escape.passed_on(piece)
    found = re.search(rb"(?:^|\r)~\.", whole)
    doubled = re.sub(rb"(^|\r)~~", rb"\1\0", whole)
    found = re.search(rb"(?:^|\r)~\.", doubled)
    assert escape.is_found == bool(found)
    if not found:
        left = doubled[:-1] if re.search(rb"(?:^|\r)~$", doubled) else doubled
        assert out == left.replace(b"\0", b"~")

"""Runs as a process between the agent and a user's command on its node: starts it, stops it, reports how it
ended.

Each call has its own process, run like the reaper of a training. It is the subreaper of all processes that
the command starts, and kills them when the command ends, when the time limit passes, or when the connection
to the agent closes. It sends one line to the agent: `{"code": 0, "timed_out": false, "took_s": 0.1, "error":
"", "left": []}`. Any message from the agent means stop. The command runs at the lowest priority (nice) and is
the first to be killed when memory runs out.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
import time

from . import command, proc
from .loop import NOT_IGNORED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

NICE = 10
OOM_SCORE_ADJ = 700
GRACE_S = 1.0  # between SIGTERM and SIGKILL
UNKILLABLE_S = 5.0  # after SIGKILL: what still lives then is in state D, and is left
POLL_S = 0.02  # while ending
_LIBC = ctypes.CDLL(None, use_errno=True)


class Call:
    def __init__(self, given: dict[str, Any]) -> None:
        self.argv: list[str] = given["argv"]
        self.env: dict[str, str] = given["env"]
        self.cwd: str = given["cwd"]
        self.out_fd: int = given["out_fd"]
        self.is_terminal: bool = given["is_terminal"]
        self.limit_s: float | None = given["limit_s"]
        self.channel = socket.socket(fileno=given["channel_fd"])
        self.command: int | None = None
        self.code: int | None = None
        self.error = ""
        self.timed_out = False
        self.started_s = time.monotonic()
        self.ended_s: float | None = None  # the command has ended by itself
        self.ending_s: float | None = None  # since when it is being ended
        self.killed_s: float | None = None

    def run(self) -> None:
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        become_small()
        command.become_subreaper()
        error_fd = self.start()
        os.close(self.out_fd)  # ours: its end is to be seen when the last of the tree has closed it
        self.channel.setblocking(False)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self.channel, select.POLLIN)
        is_cut = False
        while not self.is_over():
            for fd, _ in poll.poll(self.wait_s() * 1000):
                if fd == woken:
                    drain(woken)
                elif not self.obeys():
                    is_cut = True
                    poll.unregister(self.channel)
            self.collect()
            self.go_on(time.monotonic())
        self.error = read_error(error_fd)
        if not is_cut:
            self.tell()

    def wait_s(self) -> float:
        if self.ending_s is not None:
            return POLL_S
        return 1e6 if self.limit_s is None else max(0.0, self.started_s + self.limit_s - time.monotonic())

    def obeys(self) -> bool:
        """Reads from the agent: any message, or a closed connection, ends the user's command. Returns False
        if the connection is closed.
        """
        try:
            data = self.channel.recv(1 << 12)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self.end()
        return bool(data)

    def end(self) -> None:
        if self.ending_s is not None:
            return
        self.ending_s = time.monotonic()
        for pid in proc.descendants(os.getpid()):
            proc.send_signal(pid, signal.SIGHUP if self.is_terminal else signal.SIGTERM)
            proc.send_signal(pid, signal.SIGCONT)  # a stopped process cannot handle it

    def go_on(self, now_s: float) -> None:
        if self.limit_s is not None and now_s - self.started_s >= self.limit_s and self.ending_s is None:
            self.timed_out = self.command is not None
            self.end()
        if self.ended_s is not None and self.has_children():  # what it has left behind
            self.end()
        if self.ending_s is not None and now_s - self.ending_s >= GRACE_S:
            self.killed_s = self.killed_s or now_s
            for pid in proc.descendants(os.getpid()):
                proc.send_signal(pid, signal.SIGKILL)

    def is_over(self) -> bool:
        """Returns whether no process of the user's command is left that can be killed."""
        if self.killed_s is not None and time.monotonic() - self.killed_s >= UNKILLABLE_S:
            return True
        return self.command is None and not self.has_children()

    def has_children(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.command:
                self.command, self.code, self.ended_s = None, proc.code_of(status), time.monotonic()

    def start(self) -> int:
        """Forks a process for the user's command. Returns a file descriptor from which the error of a failed
        exec can be read, and which closes on success.
        """
        read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        reaper = os.getpid()
        pid = os.fork()
        if pid == 0:
            self.become_command(write_end, reaper)
        os.close(write_end)
        self.command = pid
        return read_end

    def become_command(self, error_fd: int, reaper: int) -> NoReturn:
        what = self.cwd
        try:
            os.setsid()
            _LIBC.prctl(command.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != reaper:
                os._exit(127)
            default_signals()
            self.place_output()
            os.chdir(self.cwd)
            what = self.argv[0]
            os.execvpe(self.argv[0], self.argv, self.env)
        except OSError as error:
            os.write(error_fd, f"{what}: {error.strerror}".encode("utf-8", "replace"))
            os._exit(127 if error.errno == errno.ENOENT else 126)
        except BaseException as error:  # noqa: BLE001 - a forked child must end here, whatever happened
            os.write(error_fd, repr(error).encode("utf-8", "replace"))
        os._exit(126)

    def place_output(self) -> None:
        if self.is_terminal:
            fcntl.ioctl(self.out_fd, termios.TIOCSCTTY, 0)
        source = self.out_fd if self.is_terminal else os.open(os.devnull, os.O_RDONLY)
        for target, fd in ((0, source), (1, self.out_fd), (2, self.out_fd)):
            os.dup2(fd, target)

    def tell(self) -> None:
        fact = {
            "code": self.code,
            "timed_out": self.timed_out,
            "took_s": (self.ended_s or time.monotonic()) - self.started_s,
            "error": self.error,
            "left": proc.descendants(os.getpid()) if self.has_children() else [],
        }
        try:
            self.channel.sendall(json.dumps(fact).encode() + b"\n")
        except OSError:
            pass  # the agent has gone meanwhile


def default_signals() -> None:
    for number in signal.valid_signals():
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # SIGKILL, SIGSTOP and those of the C library
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def become_small() -> None:
    """Gives this process the lowest CPU priority and makes it the first choice of the OOM killer, so that the
    training has precedence.
    """
    try:
        os.nice(NICE)
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(OOM_SCORE_ADJ))
    except OSError:
        pass


def drain(fd: int) -> None:
    try:
        while os.read(fd, 1 << 12):
            continue
    except BlockingIOError:
        pass


def read_error(fd: int) -> str:
    try:
        return os.read(fd, 1 << 12).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def main() -> None:
    orders = int(sys.argv[1])
    given = json.loads(os.pread(orders, os.fstat(orders).st_size, 0))
    os.close(orders)
    for fd in (given["channel_fd"], given["out_fd"]):
        os.set_inheritable(fd, False)  # the command would keep them open
    for number in signal.valid_signals() - NOT_IGNORED:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass  # the C library's own
    os.chdir("/")
    Call(given).run()

"""Implements the reaper's event loop: waits for the next event, records it, and continues a stop in progress.
Makes no decisions.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import select
import signal
import socket
import sys
import time

from . import command, proc
from .clients import Clients
from .facts import Facts
from .forks import Forks
from .ranks import Ranks
from .stopping import Stop, sweep_shared_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

POLL_IDLE_S = 1.0
POLL_STARTING_S = 0.1
STARTING_S = 30.0  # how long new ranks are looked for often
EXACT_STARTING_S = 1.0  # how often the whole machine is looked at for children of other threads
EXACT_IDLE_S = 20.0
LOST_LIFELINE_GRACE_S = 2.0
LINGER_S = 1.0
WISH_S_MAX = 1e9
FAULTS_MAX = 20
COLLECTED_MAX = 500  # at once: a tree can fork quicker than its dead are collected
NOT_IGNORED = frozenset(
    (
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGCHLD,
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
    )
)


class Reaper:
    def __init__(self, spec: command.Spec) -> None:
        self.spec = spec
        self.dir_fd = os.open(spec.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.poll = select.poll()
        self.facts = Facts(self.dir_fd)
        self.forks = Forks(spec.forks_fd, self.poll)
        self.ranks = Ranks(self.poll, self.facts, self.forks)
        self.clients = Clients(self.poll, self.facts, self.obey, self.ranks.said)
        self.facts.tell = self.clients.tell
        self.command: int | None = None
        self.exec_fd: int | None = None  # until the exec has succeeded or failed
        self.command_code: int | None = None
        self.has_children = False
        self.uncollected = False
        self.stop: Stop | None = None
        self.stopped = False  # the tree is gone, and reported
        self.detached = spec.detach
        self.lifeline = spec.lifeline_fd
        self.bye = False
        self.gate_fd: int | None = None
        self.started_s = time.monotonic()
        self.looked_s = self.looked_exactly_s = -math.inf
        self.quiet_since_s: float | None = None
        self.faults = 0

    def run(self) -> None:
        self.woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.poll.register(self.woken, select.POLLIN)
        self.clients.listen(self.dir_fd)
        if self.spec.client_fd is not None:
            self.clients.add(socket.socket(fileno=self.spec.client_fd))
        if self.lifeline is not None:
            self.poll.register(self.lifeline, select.POLLIN)
        self.start()
        while not self.done():
            self.once_fenced()
        if not self.stopped:  # for who reads the file later: nothing was lost
            self.all_gone([], [])
        self.facts.write()

    def start(self) -> None:
        try:
            self.close_gate()
            self.command, self.exec_fd = command.start(self.spec)
        except OSError as error:
            self.facts.add("start-failed", errno=error.errno or errno.EIO, error=str(error))
            self.stopped = True
            return
        self.has_children = True
        self.poll.register(self.exec_fd, select.POLLIN)

    def close_gate(self) -> None:
        if self.spec.gate:
            self.gate_fd = os.open(self.spec.gate, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self.gate_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    # The loop

    def once_fenced(self) -> None:
        try:
            self.once()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the training its life
            self.faults += 1
            time.sleep(POLL_STARTING_S)  # not a loop that turns on the spot
            if self.faults <= FAULTS_MAX:
                self.facts.add("reaper-fault", error=repr(error))

    def once(self) -> None:
        for fd, _ in self.poll.poll(self.wait_s() * 1000):
            self.ready(fd)
        self.collect()
        now_s = time.monotonic()
        if self.exec_fd is None and not self.stopped:
            self.look(now_s)
        if self.stop:
            self.go_on_stopping(self.stop, now_s)

    def ready(self, fd: int) -> None:
        if fd == self.woken:
            self.drain_wakeups()
        elif fd == self.lifeline:
            self.lifeline_cut()
        elif fd == self.exec_fd:
            self.exec_answered()
        elif fd == self.forks.fd:
            self.hear_forks()
        elif fd in self.clients:
            self.clients.ready(fd)
        elif fd in self.ranks.by_pidfd:
            self.ranks.pidfd_ready(fd)
            self.looked_exactly_s = -math.inf  # its helpers are ours now, for as long as they last
        elif fd in self.ranks.candidates.by_pidfd:
            self.ranks.candidates.ready(fd)

    def hear_forks(self) -> None:
        for fault in self.forks.read():
            if self.stop is None:
                self.facts.add("reaper-fault", error=fault)

    def drain_wakeups(self) -> None:
        try:
            while os.read(self.woken, 512):
                pass
        except BlockingIOError:
            pass

    def wait_s(self) -> float:
        if self.uncollected:
            return 0.0
        if self.stop:
            return self.stop.wait_s(time.monotonic())
        return POLL_STARTING_S if self.is_starting(time.monotonic()) else POLL_IDLE_S

    def is_starting(self, now_s: float) -> bool:
        young = now_s - self.started_s < STARTING_S
        return young and not self.stopped and not self.ranks.all_found()

    def done(self) -> bool:
        """Returns whether no process is left to watch and all clients have received every message."""
        ended = self.stopped or (self.command_code is not None and not self.has_processes)
        if not ended or (not self.bye and (self.lifeline is not None or len(self.clients))):
            self.quiet_since_s = None
            return False
        now_s = time.monotonic()
        if self.quiet_since_s is None:
            self.quiet_since_s = now_s
        return self.bye or now_s - self.quiet_since_s > LINGER_S

    # Processes

    def exec_answered(self) -> None:
        assert self.exec_fd is not None and self.command is not None
        try:
            error = os.read(self.exec_fd, 4096)
        except BlockingIOError:
            return
        self.poll.unregister(self.exec_fd)
        os.close(self.exec_fd)
        self.exec_fd = None
        if not error:
            self.facts.add("started", pid=self.command, reaper=os.getpid())
            return
        number, _, what = error.decode("utf-8", "replace").partition(" ")
        self.facts.add("start-failed", errno=int(number), error=what)
        self.command = None
        self.stopped = True
        self.stop = None

    def collect(self) -> None:
        self.uncollected = False
        for _ in range(COLLECTED_MAX):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.has_children = False
                return
            if pid == 0:
                return
            self.collected(pid, proc.code_of(status))
        self.uncollected = True

    def collected(self, pid: int, code: int) -> None:
        if pid == self.command and self.exec_fd is not None:
            self.exec_answered()
        if pid in self.ranks.living:
            self.ranks.ended(pid, code)
        if pid == self.command and self.command_code is None:
            self.command_code = code
            self.look_exactly_now()  # a launcher that leaves its ranks: they are reported before its own end
            if self.stop is None and not self.gate_is_shut:
                self.ranks.command_ended(pid, code)
            self.facts.add("command-exited", pid=pid, code=code)

    def look(self, now_s: float) -> None:
        often = self.is_starting(now_s)
        if now_s - self.looked_s < (POLL_STARTING_S if often else POLL_IDLE_S) * 0.9:
            return
        self.looked_s = now_s
        self.facts.write()
        if now_s - self.looked_exactly_s < (EXACT_STARTING_S if often else EXACT_IDLE_S):
            self.ranks.look(now_s, self.forks.children)
            return self.ranks.count_stopped()
        self.looked_exactly_s = now_s
        below = self.forks.by_parent()
        self.ranks.saw(proc.descendants(os.getpid(), below))
        self.ranks.look(now_s, lambda pid: below.get(pid, []))
        if self.stop is None and not self.gate_is_shut:
            self.ranks.guess(now_s, self.forks.without_stubs(below))

    @property
    def has_processes(self) -> bool:
        return self.has_children or self.forks.is_busy

    @property
    def gate_is_shut(self) -> bool:
        """Returns whether this reaper runs a standby whose processes still wait at the gate."""
        return self.gate_fd is not None

    def look_exactly_now(self) -> None:
        if self.exec_fd is None and self.stop is None:
            self.looked_s = self.looked_exactly_s = -math.inf
            self.look(time.monotonic())

    # Ending

    def ask_stop(self, finish_s: float, grace_s: float, why: str) -> None:
        if self.stopped:
            self.facts.add("stopped", killed=[], left=[])
        elif self.stop:
            self.stop.harden(time.monotonic(), finish_s, grace_s)
        else:
            self.facts.add("stopping", grace_s=grace_s, why=why)
            command = self.command if self.command_code is None else None
            self.stop = Stop(time.monotonic(), finish_s, grace_s, command)

    def go_on_stopping(self, stop: Stop, now_s: float) -> None:
        if not self.has_processes:
            return self.all_gone(sorted(stop.killed), [])
        if stop.may_finish(now_s, self.command_code is None or bool(self.ranks.living)):
            return None
        tree = proc.descendants(os.getpid(), self.forks.by_parent())
        self.ranks.saw(tree)
        if not stop.go_on(now_s, tree, self.ranks, self.collect):
            self.all_gone(sorted(stop.killed), [pid for pid in tree if proc.state(pid) not in (b"", b"Z")])
        return None

    def all_gone(self, killed: list[int], left: list[int]) -> None:
        if not left:
            sweep_shared_memory(self.ranks.pids_seen)
        self.stop = None
        self.stopped = not left
        self.facts.add("stopped", killed=killed, left=left)

    def lifeline_cut(self) -> None:
        assert self.lifeline is not None
        self.clients.serve_all()  # `poll` may have seen the lifeline cut, and not the `detach` sent before
        self.poll.unregister(self.lifeline)
        os.close(self.lifeline)
        self.lifeline = None
        self.facts.add("lifeline-lost", detached=self.detached)
        if not self.detached and not self.stopped:
            self.ask_stop(0.0, LOST_LIFELINE_GRACE_S, "the Holdfast process has ended")

    # Orders

    def obey(self, wish: dict[str, Any]) -> None:
        match wish["do"]:
            case "stop":
                finish_s, grace_s = _seconds(wish.get("finish_s", 0)), _seconds(wish.get("grace_s", 30))
                self.ask_stop(finish_s, grace_s, str(wish.get("why", "")))
            case "signal":
                self.signal_group(int(wish["signal"]))
            case "trains":
                self.ranks.trains = True
                self.look_exactly_now()
            case "go":
                self.open_gate(dict(wish.get("env", {})))
            case "detach":
                self.detached = True
            case "bye":
                self.bye = True

    def signal_group(self, number: int) -> None:
        if self.command is not None and self.command_code is None:
            try:
                os.killpg(self.command, number)
            except OSError:
                pass

    def open_gate(self, env: dict[str, str]) -> None:
        if self.gate_fd is None:
            return
        path = self.spec.gate + ".go"
        with open(path + ".part", "w") as file:
            json.dump(env, file)
        os.rename(path + ".part", path)
        os.close(self.gate_fd)
        self.gate_fd = None
        self.started_s = time.monotonic()  # ranks may come, or go on, only now
        self.facts.add("released")


def _seconds(value: object) -> float:
    """Returns a duration in seconds. Raises ValueError for an invalid one."""
    seconds = float(str(value))
    if math.isnan(seconds):
        raise ValueError(value)
    return min(max(seconds, 0.0), WISH_S_MAX)


def _read_spec(orders: int) -> command.Spec:
    with open(orders, "rb") as file:  # read from its start, wherever the writer left off
        file.seek(0)
        spec = command.Spec(json.load(file))
    for fd in (spec.lifeline_fd, spec.client_fd, spec.forks_fd):
        if fd is not None:
            os.set_inheritable(fd, False)  # the command would keep them open
    return spec


def main() -> None:
    for number in signal.valid_signals() - NOT_IGNORED:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass  # the C library's own
    spec = _read_spec(int(sys.argv[1]))
    if os.getpid() != os.getsid(0):
        os.setsid()
    command.become_subreaper()
    os.chdir("/")
    Reaper(spec).run()

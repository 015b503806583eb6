"""Part of the shim: the fork server of one attempt, forked from the zygote. Loaded by `holdfast_shim_zygote.py`.

It is the parent of the attempt's processes and of processes that they leave behind. It receives requests of stubs
(`holdfast_shim_stub.py`), forks a process for each, and reports to each stub how its fork ended.
"""

import marshal
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FAULTS_MAX = 20
KEEP_S = 0.5


class Forked(Exception):
    """Raised in a fork, so that it leaves the fork server's loop and continues as the script."""

    program = None  # type: tuple[str, str] | None


class Server:
    """The fork server of one attempt: the parent of its processes and of processes that they leave behind.

    `order`: {"marks": variables to be shown in /proc/PID/environ}. It ends when the reaper closes the connection.
    """

    def __init__(self, zygote: "Any", order: "dict[str, Any]", listener: int, channel: int) -> None:
        self.zygote = zygote
        self.stub, self.fork = zygote.stub, zygote.fork
        self.pid = os.getpid()
        self.listener = socket.socket(fileno=listener)
        self.channel = socket.socket(fileno=channel)
        self.poll = select.poll()
        self.stubs = {}  # type: dict[int, socket.socket]  # by descriptor
        self.pids = {}  # type: dict[int, int]  # the fork of each
        self.ended = set()  # type: set[int]  # forks that are kept until their stub has ended
        self.dead = []  # type: list[tuple[float, int]]  # forks without a stub, and until when they are kept
        self.faults = 0
        self.fork.LIBC.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        marks = {os.fsencode(key): os.fsencode(value) for key, value in order["marks"].items()}
        self.fork.show([*zygote.command, order["name"]], marks)

    def run(self) -> None:
        self.woken, self.wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.channel.send(b"%d\n" % self.pid)
        for fd in (self.listener.fileno(), self.channel.fileno(), self.woken):
            self.poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in self.poll.poll(KEEP_S * 1000 if self.dead else None):
                try:
                    self.ready(fd)
                except Forked:
                    raise
                except Exception as error:  # a fault here must not cost the ranks their parent
                    self.fault(error)
            self.bury()

    def ready(self, fd: int) -> None:
        if fd == self.woken:
            self.collect()
        elif fd == self.listener.fileno():
            self.accept()
        elif fd == self.channel.fileno():
            self.hung_up()
        elif fd in self.stubs:
            self.hear(fd)

    def fault(self, error: "Exception") -> None:
        if os.getpid() != self.pid:
            os._exit(1)
        self.faults += 1
        if self.faults <= FAULTS_MAX:
            _send(self.channel, b"fault %s\n" % repr(error).encode("utf-8", "replace")[:500])
        time.sleep(0.01)  # not a loop that turns on the spot

    def hung_up(self) -> None:
        """Processes the end of the reaper's connection: the reaper has ended, or its worker has."""
        if not self.channel.recv(64):
            for pid in self.pids.values():
                _kill(pid)
            os._exit(0)

    def accept(self) -> None:
        connection, _ = self.listener.accept()
        self.stubs[connection.fileno()] = connection
        self.poll.register(connection.fileno(), select.POLLIN)

    def hear(self, fd: int) -> None:
        connection = self.stubs[fd]
        try:
            fds = self.fork.received(connection)
        except OSError:
            fds = []
        if not fds or fd in self.pids:
            self.stub_gone(fd)
            return
        try:
            self.answer(connection, fds)
        except Forked:
            raise
        except (OSError, ValueError, KeyError) as error:
            self.refuse(connection, str(error))
        finally:
            if os.getpid() == self.pid:
                for one in fds:
                    os.close(one)

    def answer(self, connection: "socket.socket", fds: "list[int]") -> None:
        with open(os.dup(fds[0]), "rb") as file:
            file.seek(0)
            given = marshal.loads(file.read())
        why = self.why_not(given)
        if why:
            self.refuse(connection, why)
            return
        pid = os.fork()
        if pid == 0:
            self.become(connection, given, fds)
        self.pids[connection.fileno()] = pid

    def refuse(self, connection: "socket.socket", why: str) -> None:
        try:
            connection.send(b"n" + why.encode("utf-8", "replace")[:1000])
        except OSError:
            pass

    def become(self, connection: "socket.socket", given: "dict[str, Any]", fds: "list[int]") -> None:
        """Turns this forked process into the rank or launcher that a stub process has requested.

        raises: Forked, once that is done: it ends the server's loop in the fork, which then runs the rank's program
        """
        try:
            for other in [self.listener, self.channel, *self.stubs.values()]:
                if other is not connection:
                    other.close()
            os.close(self.woken)
            os.close(self.wake)
            os.close(fds[0])
            answer = self.fork.high(connection.detach())
            life = self.fork.high(fds[1])
            self.fork.adopt(given, fds[3:], life, fds[2], self.pid)
            self.fork.take_python(given, self.added(given))
            self.zygote.preload.keep_rank_anew()
            os.write(answer, b"y%d\n" % os.getpid())
            os.close(answer)
        except BaseException as error:
            try:
                os.write(answer, b"n" + repr(error).encode("utf-8", "replace")[:1000])
            finally:
                os._exit(0)
        fork = Forked()
        same = tuple(given["program"]) == self.zygote.program[:2]
        fork.program = None if same else (given["program"][0], given["program"][1])
        raise fork

    def added(self, given: "dict[str, Any]") -> "dict[bytes, bytes]":
        """Returns the environment variables that the preloaded modules set when they are imported, by name.

        `given`: the request to fork. A launcher gets only those of modules that it imports itself, because its ranks
        inherit them.
        """
        program = tuple(given["program"])
        is_launcher = program != self.zygote.program[:2] and program[0] != "code"
        found = self.zygote.added_by_launcher if is_launcher else self.zygote.added
        return dict(found)

    def why_not(self, given: "dict[str, Any]") -> str:
        """Returns why the requested process cannot be forked from here; empty if it can."""
        zygote = self.zygote
        if given["interpreter"] != zygote.interpreter:
            return "its Python is another one, or has other options"
        if given["spaces"] != zygote.spaces:
            return "it is in another namespace or control group"
        if tuple(map(tuple, given["ids"])) != tuple(map(tuple, zygote.ids)):
            return "it runs as another user"
        if given["path"] != zygote.path:
            return "it has another sys.path"
        is_other = tuple(given["program"]) != zygote.program[:2]
        ours = zygote.env
        if is_other:  # a launcher, which sets variables for its ranks, and computes nothing itself
            ours = {key: value for key, value in ours.items() if key in given["env"]}
        return str(zygote.preload.environment_why_not(ours, given["env"], zygote.reads, zygote.added))

    def stub_gone(self, fd: int) -> None:
        connection = self.stubs.pop(fd)
        self.poll.unregister(fd)
        connection.close()
        pid = self.pids.pop(fd, 0)
        if not pid:
            return
        if pid in self.ended:
            self.ended.discard(pid)
            self.dead.append((time.monotonic() + KEEP_S, pid))
        else:
            _kill(pid)  # the kernel has killed it already, unless it has closed its socket

    def bury(self) -> None:
        """Collects the exit status of forks whose stub ended a moment ago. Until then the reaper can read how they
        ended.
        """
        while self.dead and self.dead[0][0] <= time.monotonic():
            os.waitpid(self.dead.pop(0)[1], 0)

    def collect(self) -> None:
        """Reports to stubs how their forks ended. A fork's exit status is collected after the stub has ended, so that
        its pid is not reused before.
        """
        try:
            while os.read(self.woken, 512):
                pass
        except BlockingIOError:
            pass
        by_pid = {pid: fd for fd, pid in self.pids.items()}
        kept = {pid for _, pid in self.dead}
        for pid in _waiting():
            if pid in by_pid:
                self.tell_stub(by_pid[pid], pid)
            elif pid not in kept:
                os.waitpid(pid, os.WNOHANG)
        for pid, fd in by_pid.items():
            if pid in self.ended:
                continue
            found = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
            if found is not None and found.si_pid:
                self.tell_change(fd, found.si_code == os.CLD_STOPPED)

    def tell_stub(self, fd: int, pid: int) -> None:
        if pid in self.ended:
            return
        self.ended.add(pid)
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert found is not None
        status = found.si_status << 8 if found.si_code == os.CLD_EXITED else found.si_status
        _send(self.stubs[fd], b"e%d\n" % status)
        _continue(self.stubs[fd])  # it may be stopped, as its fork was

    def tell_change(self, fd: int, is_stopped: bool) -> None:
        if is_stopped:
            _send(self.stubs[fd], b"s\n")
        else:
            _continue(self.stubs[fd])


def _waiting() -> "list[int]":
    """Children that have ended and are not collected."""
    with open("/proc/self/task/%d/children" % os.getpid(), "rb") as file:
        pids = [int(word) for word in file.read().split()]
    found = []
    for pid in pids:
        state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is not None and state.si_pid:
            found.append(pid)
    return found


def _continue(connection: "socket.socket") -> None:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    try:
        os.kill(int.from_bytes(found[:4], sys.byteorder), signal.SIGCONT)
    except OSError:
        pass  # it has ended


def _send(connection: "socket.socket", data: bytes) -> None:
    try:
        connection.send(data)
    except OSError:
        pass  # the stub has ended


def _kill(pid: int) -> None:
    """With its group: what the rank has started, the end of its launcher would have ended."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue


def _nothing(number: int, frame: object) -> None:
    """The wakeup descriptor has it."""

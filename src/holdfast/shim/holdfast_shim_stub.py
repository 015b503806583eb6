"""Part of the shim: has the worker's fork server fork a process that takes the place of this one. Loaded by
`sitecustomize`.

The launcher has started this process and waits for it. A fork server (`holdfast_shim_zygote.py`) forks another one in
which the modules are imported already. This process, the stub, passes its descriptors and attributes to the fork,
then relays signals and ends with the same status. If anything is refused or unclear, the functions here return, and
Python starts the script in this process as usual.

Never returns once the fork has been confirmed. Imports only modules written in C, because the imports delay each
start.
"""

import _signal  # type: ignore[import-not-found]  # the C part of `signal`, which imports much
import _socket
import array
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = b"holdfast-stub"  # of the process, as the reaper reads it in /proc/PID/comm
ANSWER_S = 30.0  # the zygote may still import; every rank would import as much
DESCRIPTORS_MAX = 200  # the kernel passes at most 253
PR_SET_NAME = 15
FOREIGN = {_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCHLD}
FAULTS = {_signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL}
SPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
YES, NO, STATUS, STOPPED, CONTINUED = b"y", b"n", b"e", b"s", b"c"


class Refused(Exception):
    """Raised when no process will be forked; the text says why."""


def ask(path: str, *, is_ours: bool) -> None:
    """Asks for a fork that takes the place of this process; returns only if this process is to start as usual. A
    refusal is written to `not-forked` in the worker's folder.

    `is_ours`: this process is a rank or a launcher. Other processes ask only if they run the zygote's script or were
    started by multiprocessing, and no rank has started them.
    """
    program = program_of(command_line())
    if program is None or not (is_ours or _may_ask(program)):
        return
    why = start(path, program)
    name = os.path.join(os.environ["HOLDFAST_WORKER_DIR"], "not-forked")
    note = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(note, ("%d %s\n" % (os.getpid(), why)).encode("utf-8", "replace"))
    os.close(note)


def _may_ask(program: "tuple[str, str, list[str]]") -> bool:
    if os.environ.get("HOLDFAST_RANK_OWNER"):
        return False
    spawned = program[0] == "code" and "multiprocessing.spawn import spawn_main" in program[1]
    return spawned or program[1] == os.environ.get("HOLDFAST_FORK_PROGRAM")


def start(path: str, program: "tuple[str, str, list[str]]") -> str:
    """Has the fork server fork this process; returns only if this process is to start as usual, with the reason.
    `path`: the fork server's socket. `program`: see `program_of`.
    """
    try:
        stub = Stub(path)
        stub.ask(request(program))
    except Refused as error:
        return str(error)
    except OSError as error:
        return "the fork server cannot be asked: %s" % error
    stub.stand_in()
    return "never"


def program_of(words: "list[str]") -> "tuple[str, str, list[str]] | None":
    """Splits a command line of Python into its kind, what it runs, and the words from there on; None: not a script.

    `python -u train.py --lr 1` -> ("script", "train.py", ["train.py", "--lr", "1"])
    """
    at = 1
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            return ("script", word, words[at:]) if word not in ("-", "") else None
        if word.startswith("--"):
            return None
        for place, flag in enumerate(word[1:], 2):
            rest = word[place:]
            if flag in "cm":
                kind = "code" if flag == "c" else "module"
                if rest:
                    return kind, rest, words[at:]
                return (kind, words[at + 1], words[at:]) if at + 1 < len(words) else None
            if flag in "WX":
                at += 0 if rest else 1
                break
            if flag in "hVi?":
                return None
        at += 1
    return None


def command_line() -> "list[str]":
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def request(program: "tuple[str, str, list[str]]") -> "dict[str, Any]":
    """Returns the attributes of this process, for `holdfast_shim_fork.py`, which gives them to the fork.

    raises: OSError
    """
    words = command_line()
    limits = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    ignored = [n for n in range(1, 65) if n not in (32, 33) and _signal.getsignal(n) == _signal.SIG_IGN]
    return {
        "program": program[:2],
        "words": words,
        "argv": list(getattr(sys, "argv", [])),
        "path": list(sys.path),
        "env": dict(os.environ._data),  # type: ignore[attr-defined]
        "umask": _umask(),
        "limits": {number: resource.getrlimit(number) for number in limits.values()},
        "affinity": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "oom": _read("/proc/self/oom_score_adj"),
        "comm": _read("/proc/self/comm").rstrip(b"\n"),
        "ignored": ignored,
        "mask": sorted(int(one) for one in _signal.pthread_sigmask(_signal.SIG_BLOCK, ())),
        "ids": (os.getresuid(), os.getresgid(), sorted(os.getgroups())),
        "session": os.getsid(0) == os.getpid(),
        "group": os.getpgid(0) == os.getpid(),
        "spaces": spaces(),
        "interpreter": interpreter(),
        "lines": [bool(getattr(stream, "line_buffering", False)) for stream in (sys.stdout, sys.stderr)],
    }


def spaces() -> "list[str]":
    """Returns what must be equal for a process and its fork: namespaces, control groups, the root folder."""
    found = [os.readlink("/proc/self/ns/" + name) for name in SPACES]
    return [*found, os.readlink("/proc/self/root"), os.fsdecode(_read("/proc/self/cgroup"))]


def interpreter() -> "list[str]":
    """Returns which Python interpreter runs this process, and with which options."""
    options = sorted("%s=%s" % one for one in getattr(sys, "_xoptions", {}).items())
    return [sys.version, sys.executable, sys.prefix, repr(tuple(sys.flags)), *options, *sys.warnoptions]


def _umask() -> int:
    umask = os.umask(0o77)
    os.umask(umask)
    return umask


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 16)


class Stub:
    """The stub's connection to the fork server. `life`: a socket; when this end closes, the kernel kills the fork.

    raises: OSError
    """

    def __init__(self, path: str) -> None:
        self.server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # by the descriptor: the path may be too long for a socket's name
            self.server.connect("/proc/self/fd/%d/%s" % (folder, os.path.basename(path)))
        finally:
            os.close(folder)
        self.life, self.fork_life = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.pid = 0
        self.unread = b""
        self.given = []  # type: list[int]
        self.woken, self.wake = -1, -1

    def ask(self, what: "dict[str, Any]") -> None:
        """Sends the request for a fork. Returns once the fork has confirmed that it continues as this process.

        raises: Refused, OSError
        """
        own = {self.server.fileno(), self.life.fileno(), self.fork_life.fileno()}
        self.given = [fd for fd in _open_descriptors() if fd not in own]
        if len(self.given) > DESCRIPTORS_MAX:
            raise Refused("it was started with %d open files" % len(self.given))
        what["fds"] = [(fd, os.get_inheritable(fd)) for fd in self.given]
        orders = os.memfd_create("request", os.MFD_CLOEXEC)
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _write_all(orders, marshal.dumps(what))
            self._catch_signals()
            name_process(NAME)  # from here on the reaper takes it for no rank
            self._send([orders, self.fork_life.fileno(), folder, *self.given])
        finally:
            os.close(orders)
            os.close(folder)
            self.fork_life.close()
        try:
            self._await()
        except BaseException:
            self.life.close()
            self.server.close()
            name_process(what["comm"])
            self._release_signals()
            raise

    def _send(self, fds: "list[int]") -> None:
        rights = array.array("i", fds).tobytes()
        self.server.sendmsg([b"?"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])

    def _await(self) -> None:
        until_s = time.monotonic() + ANSWER_S
        poll = select.poll()
        poll.register(self.server.fileno(), select.POLLIN)
        while True:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise Refused("the fork server did not answer within %.0f s" % ANSWER_S)
            if poll.poll(left_s * 1000):
                break
        answer = self.server.recv(4096)
        if answer[:1] == YES:
            first, _, self.unread = answer[1:].partition(
                b"\n"
            )  # a fork that ended at once has said so already
            self.pid = int(first)
            return
        if answer[:1] == NO:
            raise Refused(answer[1:].decode("utf-8", "replace").strip())
        raise Refused("the fork server has ended")

    # Signals: they are for the fork

    def _catch_signals(self) -> None:
        self.woken, self.wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.handlers = {}  # type: dict[int, Any]
        _signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        for number in range(1, 65):
            if number in FOREIGN or number in FAULTS or number in (32, 33):
                continue
            handler = _signal.getsignal(number)
            if handler == _signal.SIG_IGN and number not in (_signal.SIGPIPE, 25):
                continue
            try:
                _signal.signal(number, _pass)
                self.handlers[number] = handler
            except (OSError, ValueError):
                continue

    def _release_signals(self) -> None:
        """What came meanwhile comes again, to this process, which now starts the script itself."""
        _signal.set_wakeup_fd(-1)
        for number, handler in self.handlers.items():
            if handler is not None:
                _signal.signal(number, handler)
        for number in self._signals():
            os.kill(os.getpid(), number)
        os.close(self.woken)
        os.close(self.wake)

    def _signals(self) -> bytes:
        try:
            return os.read(self.woken, 512)
        except BlockingIOError:
            return b""

    # Standing in

    def stand_in(self) -> None:
        """Relays signals to the fork until it has ended, then ends this process with the same status."""
        try:
            self._shrink()
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
            self._relay()
        finally:
            os._exit(1)

    def _shrink(self) -> None:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in self.given:
            if fd <= 2:
                os.dup2(null, fd)
            else:
                os.close(fd)
        os.chdir("/")

    def _relay(self) -> None:
        poll = select.poll()
        poll.register(self.server.fileno(), select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        self._follow()
        while True:
            for fd, _ in poll.poll():
                if fd == self.woken:
                    for number in self._signals():
                        self._pass_on(number)
                else:
                    self._hear()

    def _pass_on(self, number: int) -> None:
        """The fork's pid is its own until this process ends: the fork server collects it only then."""
        try:
            os.kill(self.pid, number)
        except OSError:
            pass

    def _hear(self) -> None:
        said = self.server.recv(64)
        if not said:
            os._exit(1)
        self.unread += said
        self._follow()

    def _follow(self) -> None:
        *words, self.unread = self.unread.split(b"\n")
        for word in words:
            if word[:1] == STATUS:
                end_as(int(word[1:]))
            elif word[:1] == STOPPED:
                os.kill(os.getpid(), _signal.SIGSTOP)


def end_as(status: int) -> None:
    """Ends this process with the given wait status, without writing a core file."""
    number = status & 0x7F
    if not number:
        os._exit(status >> 8 & 0xFF)
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if number not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(number, _signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def name_process(name: bytes) -> None:
    """Sets the name of the main thread, which /proc/PID/comm shows."""
    with open("/proc/self/comm", "wb") as file:
        file.write(name)


def _pass(number: int, frame: object) -> None:
    """The wakeup descriptor has it."""


def _open_descriptors() -> "list[int]":
    found = [int(name) for name in os.listdir("/proc/self/fd")]
    return sorted(fd for fd in found if _is_open(fd))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False  # the one by which the folder was read
    return True


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]

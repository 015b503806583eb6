"""Reports a rank's progress in its collectives.

Loaded by `sitecustomize` once a rank imports torch.distributed.

One thread listens on the Unix socket `rank-N.sock` in the rank's folder and answers requests: `b"s"` returns
the status of each process group as JSON, `b"r"` the flight records of PyTorch. `thread` in the status is the
kernel's thread id of the thread that runs the script; 0 means the main thread, or unknown. Some frameworks
(Ray Train) run the training in another thread than the main one.

Each answer begins with its length as 4 bytes, big-endian. When a request finds new process groups, their
members are written to `rank-N.groups.json`. After an uncaught exception the records are written to a file,
after a normal exit the status.

It wraps, replaces and calls nothing of the training, and is idle between requests. A rank that holds the GIL,
is stopped or is blocked in the kernel does not respond, and this is information too.

PyTorch's own server for this, `_WorkerServer`, has C++ threads that need no GIL. It is not used, because in
torch 2.13 it aborts the rank (exit code 134) in three observed cases: a forked child exits normally, the
script closes file descriptors that it did not open, or a handler written in Python is called while the
interpreter shuts down. It also starts one thread per core, warns on stderr, and has the status of process
groups alone only in builds with NCCL.

It runs in the training's Python: syntax of 3.6, standard library only, no import of holdfast, no exceptions.
"""

import _socket
import atexit
import json
import os
import select
import signal
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    class Rank(Protocol):
        """`sitecustomize.Rank`."""

        number: int
        folder: str
        reopen: Callable[[], None] | None

        def path(self, ending: str) -> str: ...
        def is_here(self) -> bool: ...
        def write(self, ending: str, data: bytes) -> None: ...

    class Lock(Protocol):
        def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...
        def release(self) -> None: ...

    class Tools(Protocol):
        """What `sitecustomize` hands over: taken before the script could replace any of it."""

        def attempt(self, part: Callable[..., Any], *given: object) -> Any: ...
        def high(self, low: int) -> int: ...
        @property
        def counts(self) -> list[Callable[[], bytes]]: ...
        @property
        def thread(self) -> Callable[[Callable[[], None], tuple[()]], int]: ...
        def lock(self) -> Lock: ...


STATUS = b"s"
RECORDS = b"r"
# Recorders by their names in torch._C._distributed_c10d; NCCL has one of its own. 2.5 to 2.13: what is there is used.
RECORDERS = (("nccl", "_dump_nccl_trace"), ("fr", "_dump_fr_trace"))
# Code that is not the user's: Python's, frozen modules, the shim.
INSTALLED = (os.path.dirname(os.__file__) + "/", "<frozen ", os.path.dirname(os.path.abspath(__file__)) + "/")
LIBRARIES = {}  # type: dict[str, bool]  # by file
LIBRARIES_MAX = 10000
NO_GROUPS = b'"pg_status":{}'
LISTED_MEMBERS_MAX = 512
PATH_BYTES_MAX = 107  # sun_path, less its end
CONNECTIONS_MAX = 8
SEND_TIMEOUT_S = 2.0
EXIT_TIMEOUT_S = 1.0
# After an answer that took long, the same one is given again for a while: at most 0.1 % of the rank's time.
REST_FACTOR = 1000.0
REST_S_MAX = 10.0


class Reach:
    """The socket of one rank, the thread that serves it, and the files written at the rank's end."""

    def __init__(self, rank: "Rank", tools: "Tools") -> None:
        self.rank = rank
        self.tools = tools
        self.path = ""
        self.high, self.attempt = tools.high, tools.attempt
        self.answering = (
            tools.lock()
        )  # taken for good at the end: a dying interpreter must not be called into
        self.groups = {}  # type: dict[str, str]
        self.listener = -1
        self.connections = []  # type: list[int]
        self.identity = (0, 0)
        self.elsewhere = ""
        self.poll = select.poll()
        self.status = b""
        self.rest_until_s = 0.0

    # The socket

    def listen(self) -> None:
        path = self.rank.path("sock")
        new = "%s.%d" % (path, os.getpid())
        try:
            low = _bound(new)
        except OSError:
            low = self._bound_elsewhere(new)
        try:
            self.listener = self.high(low.fileno())
            low.detach()
            found = os.lstat(new)
            self.identity = (found.st_dev, found.st_ino)
            os.rename(new, path)
            self.path = path
        except OSError:
            os.unlink(new)
            raise
        self.poll.register(self.listener, select.POLLIN)

    def _bound_elsewhere(self, link: str) -> "_socket.socket":
        """Opens the socket in a folder of its own, with a link to it, because some file systems do not
        support sockets.
        """
        folder = tempfile.mkdtemp(prefix="holdfast-")
        path = os.path.join(folder, "sock")
        try:
            os.symlink(path, link)
            self.elsewhere = folder
            return _bound(path)
        except OSError:  # the rank's folder cannot be written at all
            self.attempt(os.unlink, path)
            os.rmdir(folder)
            raise

    def remove(self) -> None:
        """Removes the socket's name, unless another process has taken it over."""
        if self.elsewhere:
            self.attempt(os.unlink, os.path.join(self.elsewhere, "sock"))
            self.attempt(os.rmdir, self.elsewhere)
        path = self.rank.path("sock")
        found = os.lstat(path)
        if (found.st_dev, found.st_ino) == self.identity:
            os.unlink(path)

    def reopen(self) -> None:
        """Gives the socket the path of the rank's current name; opens a new one if the old one has lost its path.

        Does nothing if it is there already. A thread that serves the old socket continues with it.
        """
        path = self.rank.path("sock")
        try:
            found = os.lstat(path)
            is_own = (found.st_dev, found.st_ino) == self.identity
        except OSError:
            is_own = False
        if is_own or self.listener < 0:
            return
        if self._is_where_it_was():
            os.rename(self.path, path)
            self.path = path
            return
        self.poll = select.poll()
        self.connections = []
        self.listen()
        self.tools.thread(self.serve, ())

    def _is_where_it_was(self) -> bool:
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    def leave(self) -> None:
        """Closes the socket in a forked child, because it belongs to the parent."""
        for fd in [self.listener, *self.connections]:
            self.attempt(os.close, fd)

    # The thread

    def serve(self) -> None:
        # A signal must find the main thread, which would otherwise sleep on in its system call.
        self.attempt(signal.pthread_sigmask, signal.SIG_BLOCK, _signals())
        while self.attempt(self._round):
            pass

    def _round(self) -> bool:
        """Replies to the queries that have arrived. Returns False if the script has closed the socket."""
        for fd, event in self.poll.poll():
            if fd != self.listener:
                self._hear(fd)
            elif event != select.POLLIN:
                return False
            else:
                self._accept()
        return True

    def _accept(self) -> None:
        listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, self.listener)  # type: Any
        try:
            fd = self.high(listener._accept()[0])
        except OSError:  # who asked has gone already, or there are no descriptors left
            return
        finally:
            listener.detach()
        os.set_blocking(fd, False)
        self.connections.append(fd)
        self.poll.register(fd, select.POLLIN)
        if len(self.connections) > CONNECTIONS_MAX:
            self._drop(self.connections[0])

    def _hear(self, fd: int) -> None:
        try:
            asked = os.read(fd, 64)
            if asked:
                self._answer(fd, asked[-1:])
        except OSError:
            asked = b""
        if not asked:
            self._drop(fd)

    def _drop(self, fd: int) -> None:
        self.connections.remove(fd)
        self.poll.unregister(fd)
        self.attempt(os.close, fd)

    def _answer(self, fd: int, asked: bytes) -> None:
        self.answering.acquire()
        try:
            body = self._status_answer() if asked == STATUS else self.records()
        finally:
            self.answering.release()
        _send(fd, len(body).to_bytes(4, "big") + body, time.monotonic() + SEND_TIMEOUT_S)

    def _status_answer(self) -> bytes:
        if time.monotonic() >= self.rest_until_s:
            self.attempt(self.note_groups)
            self.status = self.current_status()
        return self.status

    # What torch knows

    def current_status(self) -> bytes:
        """Returns the progress of each process group as JSON, by recorder; without one, the number of
        collectives of each group.
        """
        began_s, now_s = _cpu_s(), time.monotonic()
        parts = [b'{"at": %.6f' % now_s, b'"thread": %d' % (self.attempt(_script_thread) or 0)]
        for name, function in _recorders("_json"):
            parts.append(b'"%s": %s' % (name.encode(), function(False, False)))
        if len(parts) == 2:
            parts.append(b'"sequences": ' + json.dumps(self.attempt(_sequences) or []).encode())
        parts += [count() for count in self.tools.counts]
        self.rest_until_s = now_s + min(REST_S_MAX, REST_FACTOR * (_cpu_s() - began_s))
        return b", ".join(parts) + b"}"

    def records(self) -> bytes:
        """Returns the flight records of each recorder with groups, without stacks, which would import 820
        modules under the GIL.
        """
        found = b""
        statuses = dict(_recorders("_json"))
        for name, function in _recorders():
            if name not in statuses or NO_GROUPS not in statuses[name](False, False):
                record = function(True, False, False)
                found += len(record).to_bytes(4, "big") + record
        return found

    def note_groups(self) -> None:
        """Writes the members of new process groups; on gloo the flight record lacks them."""
        world = _world()
        names = dict(world.pg_names) if world is not None else {}
        members = dict(world.pg_group_ranks) if world is not None else {}
        new = {one: name for one, name in names.items() if one in members and str(name) not in self.groups}
        for group, name in new.items():
            ranks = sorted(members[group])
            about = {
                "desc": str(getattr(group, "group_desc", "")),
                "backend": str(world.pg_map[group][0]),
            }  # type: dict[str, object]
            about.update({"ranks": ranks} if len(ranks) <= LISTED_MEMBERS_MAX else {"ranges": _ranges(ranks)})
            self.groups[str(name)] = json.dumps(about)
        if new:
            lines = ["%s: %s" % (json.dumps(name), about) for name, about in self.groups.items()]
            self.rank.write("groups.json", ("{" + ",\n".join(lines) + "}\n").encode())

    # What it leaves

    def last_words(self) -> None:
        """Writes the flight records before an uncaught exception ends the rank."""
        self.attempt(self.note_groups)
        data = self.records()
        number = 0
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            number += 1
            ending = "flight.pickle" if number == 1 else "flight-%d.pickle" % number
            self.rank.write(ending, data[4:end])
            data = data[end:]

    def at_exit(self) -> None:
        if not self.rank.is_here():
            return
        if self.answering.acquire(True, EXIT_TIMEOUT_S):
            self.attempt(self.note_groups)
            if self.groups:
                self.attempt(self._write_status)
        self.attempt(self.remove)

    def _write_status(self) -> None:
        self.rank.write("status.json", self.current_status()[:-1] + b', "exit_time": %.6f}\n' % time.time())


def start(rank: "Rank", tools: "Tools") -> "Callable[[], None]":
    """Opens the socket and starts its thread.

    Returns the function to call when an exception ends the rank.
    """
    reach = Reach(rank, tools)
    tools.attempt(reach.listen)
    if reach.listener >= 0:
        tools.thread(reach.serve, ())
        rank.reopen = reach.reopen
        if hasattr(os, "register_at_fork"):  # from 3.7 on
            os.register_at_fork(after_in_child=reach.leave)
    atexit.register(tools.attempt, reach.at_exit)
    return reach.last_words


def _bound(path: str) -> "_socket.socket":
    """Returns a listening socket at that path, of any length, to which only its owner may connect."""
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    short, folder = path, -1
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        short = "/proc/self/fd/%d/%s" % (folder, os.path.basename(path))
    try:
        sock.bind(short)
    finally:
        if folder >= 0:
            os.close(folder)
    os.chmod(path, 0o600)
    sock.listen(CONNECTIONS_MAX)
    sock.setblocking(False)
    return sock


def _send(fd: int, data: bytes, deadline_s: float) -> None:
    """Sends bytes. Raises OSError if the receiver does not read them in time."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll(int(1000 * SEND_TIMEOUT_S))


def _recorders(ending: str = "") -> "list[tuple[str, Callable[..., bytes]]]":
    c10d = getattr(sys.modules.get("torch._C"), "_distributed_c10d", None)
    found = [(name, getattr(c10d, function + ending, None)) for name, function in RECORDERS]
    return [(name, function) for name, function in found if function is not None]


def _world() -> "Any":
    return getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)


def _script_thread() -> int:
    """Returns the kernel's id of the oldest thread that runs the user's code; 0 if the main thread does."""
    threading, frames = sys.modules.get("threading"), sys._current_frames()
    if threading is None or _is_of_script(frames.get(threading.main_thread().ident)):
        return 0
    known = [one for one in threading.enumerate() if one.ident in frames and hasattr(one, "native_id")]
    return min((int(one.native_id) for one in known if _is_of_script(frames[one.ident])), default=0)


def _is_of_script(frame: "Any") -> bool:
    while frame is not None:
        if not _is_library(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def _is_library(file: str) -> bool:
    known = LIBRARIES.get(file)
    if known is None:
        known = file.startswith(INSTALLED) or any(
            part in file for part in ("site-packages/", "dist-packages/")
        )
        if len(LIBRARIES) < LIBRARIES_MAX:
            LIBRARIES[file] = known
    return known


def _sequences() -> "list[int]":
    """Returns how many collectives each process group was given, in the order in which the groups were
    created.
    """
    world = _world()
    return [group._get_sequence_number_for_group() for group in list(world.pg_names)] if world else []


def _ranges(ranks: "list[int]") -> str:
    """Formats ranks as ranges: "0-1023", "0-1016:8" (each eighth), "0-7,64-71"."""
    step = ranks[1] - ranks[0]
    if ranks == list(range(ranks[0], ranks[-1] + 1, step)):
        return "%d-%d" % (ranks[0], ranks[-1]) + (":%d" % step if step > 1 else "")
    runs = []  # type: list[list[int]]
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join("%d-%d" % (first, last) for first, last in runs)


def _signals() -> "Iterable[int]":
    """Returns all signals except the two that glibc reserves and warns of."""
    if hasattr(signal, "valid_signals"):  # from Python 3.8 on
        return signal.valid_signals()
    return [number for number in range(1, signal.NSIG) if number not in (32, 33)]


def _cpu_s() -> float:
    """Returns the CPU time of this thread in seconds; before Python 3.7 the elapsed time."""
    return time.thread_time() if hasattr(time, "thread_time") else time.perf_counter()

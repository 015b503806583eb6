"""Client of a reaper: starts a command in a worker, receives the reaper's messages about it, and stops it.

All messages (facts) are also in `reaper.jsonl` in the worker's folder, so another process can reattach to the
attempt or read them afterwards. Never waits for a reaper.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.core.kubernetes.wrapped import expanded

AGENT = Path(__file__).absolute().parent
BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from reaper.loop import main; main()"
SOCKET = "reaper.sock"
FACTS = "reaper.jsonl"
READ_BYTES = 1 << 16
SWEEP_ROUNDS_MAX = 100


class Fact(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One message from a reaper about the command's processes. `t`: the reaper's wall clock. `n`: sequence
    number from 1, without gaps.
    """

    t: float = 0.0
    n: int = 0


class Started(Fact, frozen=True, tag="started"):
    pid: int
    reaper: int


class StartFailed(Fact, frozen=True, tag="start-failed"):
    errno: int
    error: str


class RankFound(Fact, frozen=True, tag="rank-started"):
    """Message of the reaper: a rank was found, or more became known about it. A second pid for a rank
    replaces the first.

    `source`: what identified the process as this rank: "said" (the process itself), a family of environment
    variables ("torch", "openmpi", ...), or a guess. `world`: 0 for the first training of the command, 1, 2,
    ... for others that run beside it; `own_rank`: the rank's number in its training.
    """

    pid: int
    rank: int
    local_rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None  # of this worker; None: the launcher does not say
    master_addr: str = ""
    master_port: int | None = None
    source: str = ""
    world: int = 0
    own_rank: int | None = None


class RankWithdrawn(Fact, frozen=True, tag="rank-withdrawn"):
    """Message of the reaper: the process is not this rank, as the process itself or another one has shown."""

    pid: int
    rank: int
    why: str = ""


class RankGone(Fact, frozen=True, tag="rank-exited"):
    pid: int
    rank: int
    code: int | None  # -N when killed by signal N; None when its parent was quicker than the reaper


class CommandGone(Fact, frozen=True, tag="command-exited"):
    pid: int
    code: int


class Stopping(Fact, frozen=True, tag="stopping"):
    grace_s: float
    why: str


class Stopped(Fact, frozen=True, tag="stopped"):
    """Message of the reaper: its process tree has ended, except `left`: processes in uninterruptible sleep
    (state D).

    It is the last message of a reaper, also of one that was never asked to stop.
    """

    killed: tuple[int, ...]
    left: tuple[int, ...]


class LifelineLost(Fact, frozen=True, tag="lifeline-lost"):
    detached: bool


class Released(Fact, frozen=True, tag="released"):
    """Message of the reaper: the standby's processes have been released, and are now the attempt."""


class NoSocket(Fact, frozen=True, tag="no-socket"):
    error: str


class ReaperFault(Fact, frozen=True, tag="reaper-fault"):
    """Message of the reaper: it had an internal error and continued."""

    error: str


class ReaperLost(Fact, frozen=True, tag="reaper-lost"):
    """The reaper, the process that starts and ends the command, died before it ended the command's processes.

    The agent creates this message itself, because the reaper cannot send it any more.
    """


AnyFact = (
    Started
    | StartFailed
    | RankFound
    | RankGone
    | RankWithdrawn
    | CommandGone
    | Stopping
    | Stopped
    | LifelineLost
    | Released
    | NoSocket
    | ReaperFault
    | ReaperLost
)
_REAPERS: list[subprocess.Popen[bytes]] = []  # our children, until each has ended and is collected
_FACTS: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)


class LaunchSpec(Struct, frozen=True, kw_only=True):
    """Parameters of a command to run in a worker. `folder`: the worker's folder, which receives `stdout` and
    `stderr`.

    `gate`: name of a file in the folder at which ranks wait until `Running.go`; empty: they do not wait.
    `forks_fd`: the connection to the fork server of this attempt, which is passed to the reaper; -1: there is
    none.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    folder: Path
    detach: bool = False
    gate: str = ""
    forks_fd: int = -1


class Running:
    """The command of one worker, running or ended, seen through its reaper.

    `fileno` is for a selector; -1 once no messages can come.
    """

    def __init__(self, folder: Path, channel: socket.socket | None, lifeline: int | None = None) -> None:
        self.folder = folder
        self._channel = channel
        self._lifeline = lifeline
        self._unread = b""
        self._heard = 0  # the last fact's number
        self._ended = False  # the tree is empty, or was never there
        self._old: list[AnyFact] = []

    def fileno(self) -> int:
        return self._channel.fileno() if self._channel else -1

    @property
    def alive(self) -> bool:
        """Returns whether the reaper of this command is connected."""
        return self._channel is not None

    def read(self) -> list[AnyFact]:
        """Returns the reaper's messages since the last call, in order. Never waits."""
        facts, self._old = self._old, []
        while self._channel is not None:
            try:
                data = self._channel.recv(READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                facts += self._hung_up()
                break
            *lines, self._unread = (self._unread + data).split(b"\n")
            facts += self._new(lines)
        return facts

    def stop(self, *, grace_s: float, why: str, finish_s: float = 0.0) -> None:
        self._tell({"do": "stop", "grace_s": grace_s, "why": why, "finish_s": finish_s})

    def kill(self, why: str) -> None:
        self.stop(grace_s=0.0, why=why)

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group, as a terminal would."""
        self._tell({"do": "signal", "signal": number})

    def go(self, env: Mapping[str, str]) -> None:
        self._tell({"do": "go", "env": dict(env)})

    def trains(self) -> None:
        """Tells the reaper that the training has made steps: processes that look like ranks from now on are
        ranks.
        """
        self._tell({"do": "trains"})

    def detach(self) -> None:
        """Keeps the command running when this process ends."""
        self._tell({"do": "detach"})

    def bye(self) -> None:
        """Lets the reaper exit once its process tree is empty, and closes the connection."""
        self._tell({"do": "bye"})
        self.close()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _tell(self, wish: dict[str, object]) -> None:
        if self._channel is None:
            return
        try:
            self._channel.sendall(json.dumps(wish).encode() + b"\n")
        except OSError:
            return  # read() reports the reaper's end

    def _new(self, lines: list[bytes]) -> list[AnyFact]:
        facts: list[AnyFact] = []
        for line in lines:
            try:
                fact = _FACTS.decode(line)
            except (msgspec.ValidationError, msgspec.DecodeError):
                continue  # of a newer reaper, or torn at the end of the file
            if fact.n <= self._heard:
                continue
            self._heard = fact.n
            self._note_end(fact)
            facts.append(fact)
        return facts

    def _note_end(self, fact: AnyFact) -> None:
        ended = isinstance(fact, StartFailed) or (isinstance(fact, Stopped) and not fact.left)
        self._ended = self._ended or ended

    def _hung_up(self) -> list[AnyFact]:
        """Returns the facts in the reaper's file that it had not sent before the connection closed."""
        self.close()
        facts = self._new(_lines_of(self.folder / FACTS))
        if not self._ended:
            facts.append(ReaperLost(n=self._heard))
        return facts


def launch(spec: LaunchSpec) -> Running:
    """Starts the reaper, which starts the command and sends messages about it.

    raises: OSError, if the reaper cannot be started (no memory, no processes left)
    """
    _collect_reapers()
    read_end, lifeline = os.pipe2(os.O_CLOEXEC)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    orders = os.memfd_create("orders", os.MFD_CLOEXEC)
    try:
        _write_spec(orders, spec, read_end, theirs.fileno())
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BOOT, str(AGENT), str(orders)],
            pass_fds=(orders, read_end, theirs.fileno(), *([spec.forks_fd] if spec.forks_fd >= 0 else [])),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    except OSError:
        ours.close()
        os.close(lifeline)
        raise
    finally:
        os.close(orders)
        os.close(read_end)
        theirs.close()
        if spec.forks_fd >= 0:
            os.close(spec.forks_fd)
    running = Running(spec.folder, ours, lifeline)
    _REAPERS.append(process)
    running._tell({"do": "follow", "from": 0})
    ours.setblocking(False)
    return running


@atexit.register
def _collect_reapers() -> None:
    """Collects reapers, which outlive their `Running`: at the next start, and at the end of this program."""
    _REAPERS[:] = [process for process in _REAPERS if process.poll() is None]


def attach(folder: Path) -> Running:
    """Reattaches to a worker whose reaper another process started, or reads the messages that an ended reaper
    left.

    `Running.alive` is False if the reaper is gone; `Running.read` still returns the messages.
    """
    channel = _connected(folder)
    running = Running(folder, channel)
    if channel is None:
        running._old = running._new(_lines_of(folder / FACTS))
        if not running._ended:
            running._old.append(ReaperLost(n=running._heard))
        return running
    running._tell({"do": "follow", "from": 0})
    channel.setblocking(False)
    return running


def sweep(marks: Mapping[str, str]) -> tuple[int, ...]:
    """Kills every process of this user whose environment contains all of `marks`. Returns their pids.

    Used after a reaper itself was killed. Searches again until it finds no process, to catch new forks.
    """
    wanted = _wanted(marks)
    return _killed(lambda: [pid for pid in _pids() if _is_marked(pid, wanted)])


def sweep_attempts(job_folder: Path, node: str, up_to: int) -> tuple[int, ...]:
    """Kills every process that attempts up to number `up_to` of the job left on this node. Returns their
    pids.

    The processes are found by variables in their environment. The job's folder identifies the job, because
    another state folder may contain a job of the same name.
    """

    def found() -> list[int]:
        on_node = marked({"HOLDFAST_NODE": node})
        return [pid for pid in on_node if 0 < _attempt_of(pid, job_folder) <= up_to]

    return _killed(found)


def _attempt_of(pid: int, job_folder: Path) -> int:
    """Returns the attempt of this job to which a process belongs; 0 if it has ended or belongs to none.

    Commands of users do not belong to one: their folder variable ends with a slash.
    """
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return 0
    named = dict(one.split(b"=", 1) for one in environ.split(b"\0") if b"=" in one)
    attempt, folder = named.get(b"HOLDFAST_ATTEMPT", b""), named.get(b"HOLDFAST_WORKER_DIR", b"")
    is_of_job = folder.startswith(os.fsencode(job_folder) + b"/") and not folder.endswith(b"/")
    return int(attempt) if attempt.isdigit() and is_of_job else 0


def _killed(find: Callable[[], list[int]]) -> tuple[int, ...]:
    killed: list[int] = []
    for _ in range(SWEEP_ROUNDS_MAX):
        found = find()
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        if set(found) <= set(killed):
            break  # nothing new: gone, or about to be, or in state D; the caller does not wait for that
        killed += found
    return tuple(dict.fromkeys(killed))


def marked(marks: Mapping[str, str]) -> tuple[int, ...]:
    """Returns the ids of live processes whose environment contains all of `marks`."""
    wanted = _wanted(marks)
    return tuple(pid for pid in _pids() if _is_marked(pid, wanted))


def _wanted(marks: Mapping[str, str]) -> set[bytes]:
    """Returns the marks as bytes.

    Raises ValueError for no mark or an empty one, which would match every process.
    """
    if not marks or not all(key and value for key, value in marks.items()):
        raise ValueError(f"environment variables that would match every process: {dict(marks)}")
    return {f"{key}={value}".encode() for key, value in marks.items()}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _is_marked(pid: int, wanted: set[bytes]) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # gone, a zombie (whose environment is empty), or another user's
    return wanted <= set(environ.split(b"\0"))


def _write_spec(orders: int, spec: LaunchSpec, lifeline_fd: int, client_fd: int) -> None:
    """Writes the reaper's orders to memory: they contain the whole environment, and a disk may be full."""
    spec.folder.mkdir(parents=True, exist_ok=True)
    folder = spec.folder.absolute()
    content = {
        "argv": list(expanded(spec.argv, spec.env)),
        "cwd": str(Path(spec.cwd).absolute()),
        "env": dict(spec.env),
        "dir": str(folder),
        "stdout": str(folder / "stdout"),
        "stderr": str(folder / "stderr"),
        "detach": spec.detach,
        "lifeline_fd": lifeline_fd,
        "client_fd": client_fd,
        "gate": str(folder / spec.gate) if spec.gate else "",
        "forks_fd": spec.forks_fd if spec.forks_fd >= 0 else None,
    }
    os.pwrite(orders, json.dumps(content).encode(), 0)


def _connected(folder: Path) -> socket.socket | None:
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:  # by way of the descriptor: the folder's own path may be too long for a socket's name
        channel.connect(f"/proc/self/fd/{directory}/{SOCKET}")
    except OSError:
        channel.close()
        return None
    finally:
        os.close(directory)
    return channel


def _lines_of(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except OSError:
        return []

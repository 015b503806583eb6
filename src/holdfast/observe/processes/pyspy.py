"""Collects stacks of ranks from outside with py-spy, or else through the faulthandler in the rank.

Without native frames py-spy only reads memory, and the rank continues. With them it pauses the rank while it
reads (0.3-2.4 s), so that is done for suspects only, never for a rank that is blocked, stopped or traced, and
a tool that takes too long is killed. Nothing here blocks: `poll` does the available work and returns.

source: py-spy 0.4, which seizes threads (PTRACE_SEIZE); measured by bench/observe/stacks.py
"""

import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.model.flight.thread_stacks import RankStacks, StackSource, ThreadStack
from holdfast.observe.host.tool_run import ToolRun
from holdfast.observe.processes import stacks
from holdfast.observe.processes.procs import parse_stat, parse_wait_channel
from holdfast.parsers.pyspy import error_in, parse_json
from holdfast.parsers.stacks import last_stack

AT_ONCE = 4  # tools that run at the same time; each takes 5-40 ms of a core
NATIVE_AT_ONCE = 1  # ranks that are paused at the same time
DUMP_S = 3.0  # 9-50 ms are usual
NATIVE_S = 10.0  # 0.3-2.4 s are usual
KERNEL_S = 0.5
ANSWER_S = 1.0  # of faulthandler: 0.6-3 ms are usual
LOOK_S_MAX = 0.02  # a look that has taken so long starts no more tools: each takes 1-20 ms
WAIT_S = 0.005  # between two looks of those who may wait
SAMPLES, SAMPLES_S = 12, 4.0  # an endless loop shows 1 stack in 12, an evaluation 2-3
FORBIDDEN = ("permission denied", "operation not permitted", "access denied")
NO_TOOL = "py-spy is not installed: pip install 'holdfast[stacks]'"
# "sh" goes first: where the tool lies on a disk that does not answer, the shell hangs and not we.
SHELL = ("/bin/sh", "-c", 'exec "$@"', "sh")
READ_LINES = ("/bin/sh", "-c", 'while IFS= read -r line; do echo "$line"; done < "$1"', "sh")

Clock = Callable[[], float]


class Ask(NamedTuple):
    """Request for the stacks of one rank.

    `folder`: the worker's folder with the shim's note; None means that no signal is sent. `thread`: the
    thread that runs the script, which is listed first; 0 means the main thread.
    """

    rank: int
    pid: int
    folder: Path | None = None
    thread: int = 0


def tool_path() -> str | None:
    """Returns the path of py-spy beside this Python, else on the PATH; None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def collect(
    asks: Sequence[Ask],
    deadline_s: float,
    *,
    native: bool = False,
    signal_first: bool = True,
    tool: str | None = None,
) -> tuple[RankStacks, ...]:
    """Returns the stacks of all requested ranks, in order, within `deadline_s` seconds.

    Blocks; see Collection.
    """
    collection = Collection(
        asks, deadline_s, native=native, signal_first=signal_first, tool=tool or tool_path()
    )
    collection.start()
    try:
        while not collection.poll():
            time.sleep(WAIT_S)
        return collection.result()
    finally:
        collection.close()


class Collection:
    """Collection of stacks of many ranks.

    Call start(), then poll() until it returns True, then result(); close() any time.

    `deadline_s`: seconds from start(), after which missing stacks are given up. `native`: include native
    frames where the rank may be paused. `signal_first`: signal each rank's faulthandler at once, as a
    fallback for py-spy; otherwise only ranks for which py-spy failed.
    """

    def __init__(
        self,
        asks: Sequence[Ask],
        deadline_s: float,
        *,
        native: bool = False,
        signal_first: bool = True,
        tool: str | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._clock, self._allowed_s = clock, deadline_s
        self._until_s = 0.0
        self._ranks = [_RankInWork(ask, tool, native=native) for ask in asks]
        self._signal_first = signal_first
        self._waiting: deque[_RankInWork] = deque()
        self._at_once = NATIVE_AT_ONCE if native else AT_ONCE

    def start(self) -> None:
        self._until_s = self._clock() + self._allowed_s
        for rank in self._ranks:
            rank.look()
            if self._signal_first:
                rank.send_signal()
        self._waiting.extend(rank for rank in self._ranks if not rank.is_done)

    def poll(self) -> bool:
        """Does the available work, in a few milliseconds. Returns True when nothing is left."""
        now_s = self._clock()
        if now_s >= self._until_s:
            self._give_up()
            return True
        running = [rank for rank in self._ranks if rank.is_running]
        for rank in running:
            rank.go_on(now_s)
        for rank in [rank for rank in self._ranks if rank.is_listening]:
            rank.listen(now_s)
        room = self._at_once - sum(rank.is_running for rank in self._ranks)
        while self._waiting and room > 0 and self._clock() - now_s < LOOK_S_MAX:
            self._waiting.popleft().begin(now_s)
            room -= 1
        return not self._waiting and all(rank.is_done for rank in self._ranks)

    def result(self) -> tuple[RankStacks, ...]:
        """Returns the stacks of each rank, in the order of the requests; a rank without stacks has the
        reason.
        """
        return tuple(rank.result() for rank in self._ranks)

    def close(self) -> None:
        """Kills running tools. The ranks continue."""
        self._waiting.clear()
        for rank in self._ranks:
            rank.stop("")

    def _give_up(self) -> None:
        for rank in self._ranks:
            rank.stop(f"no stacks within {self._allowed_s:g} s")
        self._waiting.clear()


class Sampling:
    """Takes repeated stack samples of one rank's main thread over a few seconds. Used like Collection.

    It uses py-spy if possible, which takes 10 ms a sample and does not disturb the rank; otherwise the signal of the rank's
    faulthandler, which interrupts system calls: Python restarts them, C code of other libraries may not.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        samples: int = SAMPLES,
        over_s: float = SAMPLES_S,
        tool: str | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.frames: list[tuple[str, ...]] = []
        self.why_not = ""
        self._ask, self._tool, self._clock = ask, tool, clock
        self._gap_s = over_s / max(1, samples - 1)
        self._left = samples
        self._next_s = 0.0
        self._now: Collection | None = None

    def start(self) -> None:
        self._next_s = self._clock()

    def poll(self) -> bool:
        """Does the available work. Returns True when all samples were taken or failed."""
        if self._now is None:
            if not self._left:
                return True
            if self._clock() < self._next_s:
                return False
            self._begin()
        if self._now is not None and self._now.poll():
            self._keep(self._now.result()[0])
        return self._now is None and not self._left

    def close(self) -> None:
        if self._now is not None:
            self._now.close()
        self._now, self._left = None, 0

    def _begin(self) -> None:
        self._left -= 1
        self._next_s += self._gap_s
        self._now = Collection([self._ask], DUMP_S, signal_first=False, tool=self._tool, clock=self._clock)
        self._now.start()

    def _keep(self, seen: RankStacks) -> None:
        self._now = None
        if seen.threads:
            self.frames.append(seen.threads[0].frames)
        else:
            self.why_not = seen.why_not


# One rank ------------------------------------------------------------------------------------------------


class _RankInWork:
    """A rank whose stacks are being collected, and the methods still to be tried, best first."""

    def __init__(self, ask: Ask, tool: str | None, *, native: bool) -> None:
        self._ask, self._tool = ask, tool
        self._ways: list[StackSource] = ["native", "py-spy"] if native else ["py-spy"]
        self._found = RankStacks(rank=ask.rank, pid=ask.pid)
        self._failed: list[str] = []
        self._note = ""  # why there are no native frames
        self._signalled = ask.folder is None
        self._asked: stacks.Asked | None = None
        self._asked_s: float | None = None
        self._heard = b""
        self._answer: tuple[str, ...] = ()
        self._run: ToolRun | None = None
        self._way: StackSource = ""
        self.is_done = False

    @property
    def is_running(self) -> bool:
        return self._run is not None

    @property
    def is_listening(self) -> bool:
        return self._asked is not None and not self._answer

    def look(self) -> None:
        """Reads state and wait channel of the rank, and drops the methods that they forbid."""
        state, channel = _state(self._ask.pid)
        self._found = replace(self._found, state=state, wait_channel=channel)
        if state in "XZ":
            self._failed.append("the process has ended")
            self._ways.clear()
            self.is_done = True
            return
        if "native" in self._ways and (why := _not_to_be_paused(self._ask.pid, state)):
            self._note = f"no native frames: {why}"
            self._ways.remove("native")
        if self._tool is None:
            self._failed.append(NO_TOOL)
            self._ways.clear()
        if state == "D" and os.geteuid() == 0:
            self._ways.append("kernel")

    def send_signal(self) -> None:
        """Sends the signal for the rank's faulthandler, at most once, if the rank can respond."""
        if not self._signalled and not self.is_done and self._ask.folder is not None:
            self._signalled = True
            self._asked = stacks.ask(self._ask.folder, self._ask.rank, self._ask.pid)

    def begin(self, now_s: float) -> None:
        """Starts the next method; if none is left, sends the signal."""
        while self._ways and self._run is None:
            self._way = self._ways.pop(0)
            self._run = self._started(now_s)
        if self._run is None:
            self._without_tool()

    def go_on(self, now_s: float) -> None:
        if self._run is None or not self._run.poll(now_s):
            return
        run, self._run = self._run, None
        if self._way == "native":
            let_go(self._ask.pid)
        if self._way == "kernel":
            frames = tuple(
                line.rpartition("] ")[2] for line in run.output().decode(errors="replace").splitlines()
            )
            self._found = replace(self._found, kernel_frames=frames)
        elif threads := parse_json(run.output()):
            led = sorted(
                threads, key=lambda one: one.thread_id != self._ask.thread
            )  # stable: the others stay in order
            self._found = replace(self._found, threads=tuple(led), source=self._way)
            self._ways = [way for way in self._ways if way == "kernel"]
        else:
            self._fail(why_not(self._ask.pid, run, self._way))
        self.begin(now_s)

    def listen(self, now_s: float) -> None:
        """Reads the faulthandler's dump.

        It is complete when it ends with a line end and has not grown between two reads.
        """
        if self._asked is None:
            return
        self._asked_s = now_s if self._asked_s is None else self._asked_s
        if now_s - self._asked_s > ANSWER_S:
            self._asked = None
            self._failed.append("the rank's faulthandler did not respond")
            self.is_done = self._run is None and not self._ways
            return
        text = stacks.written_since(self._asked)
        stack = last_stack(text, self._ask.rank) if text == self._heard and text.endswith(b"\n") else None
        self._heard = text
        if stack is not None:
            self._answer = stack.frames
            self.is_done = self._run is None and not self._ways

    def stop(self, why: str) -> None:
        if self.is_done:
            return
        if self._run is not None:
            self._run.kill()
            self._run = None
            if self._way == "native":
                let_go(self._ask.pid)
        if why and not self._found.threads:
            self._failed.append(why)
        self.is_done = True

    def result(self) -> RankStacks:
        found, source = self._found, self._found.source
        if not found.threads and self._answer:
            found = replace(
                found, threads=(ThreadStack(name="MainThread", is_main=True, frames=self._answer),)
            )
            source = "faulthandler"
        elif not found.threads and found.state == "D":
            source = "kernel"
        why = [] if found.threads else self._failed
        notes = [self._note] if self._note else []
        return replace(found, source=source, why_not="; ".join(dict.fromkeys([*why, *notes])))

    def _started(self, now_s: float) -> ToolRun | None:
        pid = str(self._ask.pid)
        try:
            if self._way == "kernel":
                return ToolRun((*READ_LINES, f"/proc/{pid}/stack"), now_s + KERNEL_S)
            how = ("--native", NATIVE_S) if self._way == "native" else ("--nonblocking", DUMP_S)
            words = (*SHELL, str(self._tool), "dump", how[0], "--json", "--pid", pid)
            return ToolRun(words, now_s + how[1])
        except OSError as error:
            self._fail(f"py-spy could not be started: {error.strerror or error}")
            return None

    def _without_tool(self) -> None:
        if not self._found.threads:
            self.send_signal()
        self.is_done = bool(self._found.threads) or not self.is_listening

    def _fail(self, why: str) -> None:
        if self._way == "native":
            self._note = f"no native frames: {why}"
        elif self._way != "kernel":
            self._failed.append(why)


# What the kernel says ------------------------------------------------------------------------------------


def _state(pid: int) -> tuple[str, str]:
    """Returns state and wait channel of the main thread; state "X" if the process has ended, "?" if it is
    hidden.
    """
    stat = parse_stat(_read(f"/proc/{pid}/stat"))
    if stat is not None:
        return stat.state, parse_wait_channel(_read(f"/proc/{pid}/wchan"))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "X", ""
    except OSError:  # /proc is mounted with hidepid
        return "?", ""
    return "?", ""


def _not_to_be_paused(pid: int, state: str) -> str:
    """Returns why the process must not be paused; empty if it may be.

    A thread in state D cannot stop, and a tool that waits for it hangs too.
    """
    if state == "T":
        return "it is stopped"
    if tracer := _field(pid, "TracerPid"):
        return f"process {tracer} is tracing it"
    if any(one in "DtT" for one in _thread_states(pid)):
        return "a thread of the rank is blocked in the kernel (state D)"
    return "" if sys.platform == "linux" else "only Linux is supported"


def _thread_states(pid: int) -> list[str]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    seen = (parse_stat(_read(f"/proc/{pid}/task/{thread}/stat")) for thread in threads)
    return [stat.state for stat in seen if stat is not None]


def let_go(pid: int) -> None:
    """Resumes a process that py-spy left stopped.

    py-spy before 0.4 stopped threads with SIGSTOP; killed at the wrong moment, it left that signal pending
    and the rank stopped for good. The process was not stopped before the tool started, so it may be resumed.
    """
    pending = any(
        int(_field(pid, "SigPnd", thread) or "0", 16) >> (signal.SIGSTOP - 1) & 1 for thread in _threads(pid)
    )
    if pending or "T" in _thread_states(pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except OSError:
            return


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _field(pid: int, name: str, thread: str = "") -> str:
    """Returns a field of /proc/PID/status; empty if it is 0 or cannot be read."""
    text = _read(f"/proc/{pid}/task/{thread or pid}/status").decode(errors="replace")
    value = text.partition(f"{name}:")[2].split("\n", 1)[0].strip()
    return value if value.strip("0") else ""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(8192)
    except OSError:
        return b""


# Words ---------------------------------------------------------------------------------------------------


def why_not(pid: int, run: ToolRun, way: StackSource) -> str:
    """Returns why py-spy returned no stacks, and what to do about it if known."""
    name = "py-spy" if way != "native" else "py-spy --native"
    if run.killed:
        return f"{name} did not finish within {NATIVE_S if way == 'native' else DUMP_S:g} s"
    if _state(pid)[0] in "XZ":
        return "the process has ended"
    says = run.errors()
    if any(word in says.lower() for word in FORBIDDEN):
        return forbidden(pid)
    if "find python version" in says or "No python processes" in says:
        return "py-spy recognises no Python interpreter in it"
    return f"{name} failed: {error_in(says) or says.strip()[:200] or 'it printed nothing'}"


def forbidden(pid: int) -> str:
    """Returns why this process may not be inspected, and what to do about it."""
    owner = _owner(pid)
    if os.geteuid() != 0 and owner not in (None, os.geteuid()):
        return f"the process belongs to user {owner}: run this command as that user or as root"
    scope = _read("/proc/sys/kernel/yama/ptrace_scope").strip()
    if scope not in (b"", b"0"):
        now = scope.decode(errors="replace")
        return (
            f"the kernel forbids inspecting it (kernel.yama.ptrace_scope={now}): set it to 0, or run as root"
        )
    return "inspecting it is forbidden: add the capability SYS_PTRACE to the container, or run as root"


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None

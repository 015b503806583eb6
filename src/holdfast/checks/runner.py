"""Runs a suite of checks on this node in child processes, until all have run or the deadline passes.

Never blocks.

The process of a check that does not return is killed, or abandoned if the kernel blocks it, and the remaining
checks run in a new process. A process that only lacks CPU time gets more time, and so does the suite.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from holdfast.checks.child import READY
from holdfast.checks.forked import Forked, Process, waited_s
from holdfast.checks.parting import part_with
from holdfast.model.checks import DEVICE, NODE, SKIP, Finding, Outcome, Scene, Spec

AT_ONCE = 2
BUSY_TIMES = 5.0  # of the timeout, for one that is on a processor or waits for one
START_S_MAX = 20.0
NICE = 15  # of checks, which must not disturb other processes
READ_BYTES = 1 << 16
ANSWER_BYTES_MAX = 8 << 20
CHILD = (sys.executable, "-P", "-m", "holdfast.checks.child")


class SuiteRun:
    """One run of a suite of checks.

    Call `poll` until `over` is True, also whenever a descriptor in `channels` is readable.

    `until_s`: deadline by `clock`; checks that have not run by then are skipped. `at_latest_s`: later deadline that
    applies while check processes lack CPU time. `env`: environment of the check processes; None means that of this
    process. `child`: command that starts a check process; None means a fork of this process, which must not have
    threads.
    """

    def __init__(
        self,
        specs: Sequence[Spec],
        scene: Scene,
        until_s: float,
        clock: Callable[[], float] = time.monotonic,
        env: Mapping[str, str] | None = None,
        child: Sequence[str] | None = CHILD,
        at_once: int = AT_ONCE,
        at_latest_s: float | None = None,
    ) -> None:
        self._scene = msgspec.json.encode(scene) + b"\n"
        self._child = child
        self._at_once = at_once
        self._until_s, self._at_latest_s = until_s, at_latest_s
        self._clock = clock
        self._env = env
        self._began_s = clock()
        self._shared = deque(spec for spec in specs if spec.cost not in (DEVICE, NODE))
        self._alone = deque(spec for spec in specs if spec.cost in (DEVICE, NODE))
        self._children: list[_Child] = []
        self._gives_way = False

    @property
    def over(self) -> bool:
        return not (self._shared or self._alone or any(child.spec for child in self._children))

    def channels(self) -> list[int]:
        return [child.answers for child in self._children]

    def poll(self) -> list[Outcome]:
        """Returns the outcomes of checks that have ended since the last call, and starts the next checks."""
        outcomes = [
            outcome for child in list(self._children) if (outcome := self._look_at(child)) is not None
        ]
        now_s = self._clock()
        if now_s >= self._until_s and now_s >= self._until_s + self._late_s():
            outcomes += self._out_of_time()
        else:
            outcomes += self._hand_out()
        if self.over:
            self.close()
        return outcomes

    def wait(self, on_outcome: Callable[[Outcome], None] | None = None) -> list[Outcome]:
        """Runs the suite to its end and returns all outcomes.

        `on_outcome`: called with each outcome as it arrives.
        """
        outcomes: list[Outcome] = []
        while not self.over:
            self._pause()
            for outcome in self.poll():
                outcomes.append(outcome)
                if on_outcome is not None:
                    on_outcome(outcome)
        self.close()
        return outcomes

    def give_way(self) -> None:
        """Lowers the scheduling priority of the check processes, because other work needs the machine."""
        if self._gives_way:
            return
        self._gives_way = True
        for child in self._children:
            child.give_way()

    def close(self) -> None:
        """Kills the check processes that still run."""
        for child in self._children:
            child.kill()
        self._children.clear()

    def _late_s(self) -> float:
        """Returns how many seconds the deadline is extended, because check processes lacked CPU time."""
        if self._at_latest_s is None or self._gives_way:
            return 0.0
        waited = max((child.waited_s() for child in self._children), default=0.0)
        return min(waited, self._at_latest_s - self._until_s)

    def _pause(self, at_most_s: float = 0.05) -> None:
        with selectors.DefaultSelector() as selector:
            for channel in self.channels():
                selector.register(channel, selectors.EVENT_READ)
            selector.select(at_most_s)

    def _hand_out(self) -> list[Outcome]:
        """Starts waiting checks in idle processes.

        Checks that load a device run one at a time, with no other check beside.
        """
        while self._shared:
            child = self._free()
            if child is None and len(self._children) >= min(self._at_once, len(self._shared) + self._busy()):
                return []
            if (failed := self._give(child, self._shared)) is not None:
                return [failed]
        if self._alone and not self._busy() and (failed := self._give(self._free(), self._alone)) is not None:
            return [failed]
        return []

    def _give(self, child: "_Child | None", waiting: deque[Spec]) -> Outcome | None:
        spec = waiting.popleft()
        if child is not None and self._child is None and child.area != spec.area:
            child.kill()  # what one area needed in memory, the next need not pay for; a copy costs milliseconds
            self._children.remove(child)
            child = None
        try:
            if child is None:
                child = _Child(self._start(), self._clock)
                self._children.append(child)
                child.tell(self._scene)
                if self._gives_way:
                    child.give_way()
            child.give(spec)
        except OSError as error:
            if child is not None and child in self._children:
                child.kill()
                self._children.remove(child)
            return _skipped(spec, f"the check process cannot be started: {error}")
        return None

    def _start(self) -> "Forked | subprocess.Popen[bytes]":
        """Starts a check process. Raises OSError."""
        if self._child is None:
            return Forked(one for child in self._children for one in child.descriptors())
        return subprocess.Popen(
            self._child,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=dict(self._env) if self._env is not None else None,
            cwd="/",
        )

    def _busy(self) -> int:
        return sum(child.spec is not None for child in self._children)

    def _free(self) -> "_Child | None":
        return next((child for child in self._children if child.spec is None), None)

    def _look_at(self, child: "_Child") -> Outcome | None:
        spec = child.spec
        if spec is None:
            return None
        line = child.read()
        is_late = line is None and not child.ended and child.has_hung()
        if is_late:
            line = child.read()  # a process that has just returned its result is idle, as one that hangs
        if line is not None:
            child.spec = None
            try:
                return msgspec.json.decode(line, type=Outcome)
            except msgspec.MsgspecError as error:
                return _skipped(spec, f"the result of the check cannot be read: {error}")
        if child.ended:
            child.kill()
            self._children.remove(child)
            return _skipped(spec, f"the check crashed its process ({child.how_it_ended()})")
        if is_late:
            where = child.where()
            child.kill()
            self._children.remove(child)
            return _hung(spec, child.asked_for_s(), where)
        return None

    def _out_of_time(self) -> list[Outcome]:
        limit_s = self._until_s - self._began_s
        left = [child.spec for child in self._children if child.spec is not None]
        left += [*self._shared, *self._alone]
        self._shared.clear()
        self._alone.clear()
        for child in self._children:
            child.kill()
        self._children.clear()
        return [_skipped(spec, f"not finished within the {limit_s:.1f} s of the suite") for spec in left]


class _Child:
    """A process that runs checks, one at a time."""

    def __init__(self, process: "Forked | subprocess.Popen[bytes]", clock: Callable[[], float]) -> None:
        self.spec: Spec | None = None
        self.area = ""  # of its last check
        self.ended = False
        self._clock = clock
        self._ready = False
        self._is_to_yield = False
        self._text = b""
        self._process: Process = process
        self._requests: IO[bytes]
        if isinstance(process, Forked):
            self._requests, self.answers = process.requests, process.answers
        else:
            assert process.stdin is not None and process.stdout is not None, "both are pipes"
            self._requests, self.answers = process.stdin, os.dup(process.stdout.fileno())
            process.stdout.close()
        os.set_blocking(self.answers, False)
        self._asked_s, self._waited_s = clock(), 0.0

    def descriptors(self) -> tuple[int, int]:
        return self._requests.fileno(), self.answers

    def give_way(self) -> None:
        """Lowers the scheduling priority of this process and of its autogroup.

        With autogroups the kernel shares CPU time between sessions, so the priority of a process counts only
        within its own. The kernel accepts ten changes of an autogroup a second on the whole machine, so
        `read` repeats a refused one.
        """
        pid = self._process.pid
        with suppress(OSError):
            os.setpriority(os.PRIO_PGRP, pid, NICE)
        self._is_to_yield = False
        with suppress(OSError):
            if os.getsid(pid) == pid:
                try:
                    Path(f"/proc/{pid}/autogroup").write_text(str(NICE), encoding="ascii")
                except BlockingIOError:
                    self._is_to_yield = True

    def tell(self, scene: bytes) -> None:
        """Sends the scene to the process. Raises OSError if it has ended."""
        self._requests.write(scene)

    def give(self, spec: Spec) -> None:
        """Requests one check from the process. Raises OSError if it has ended."""
        self.spec, self.area = spec, spec.area
        self._asked_s, self._waited_s = self._clock(), self.waited_s()
        self._requests.write(spec.name.encode() + b"\n")
        self._requests.flush()

    def read(self) -> bytes | None:
        """Returns the outcome as bytes of JSON; None while it is incomplete."""
        if self._is_to_yield:
            self.give_way()
        with suppress(BlockingIOError):
            while piece := os.read(self.answers, READ_BYTES):
                self._text += piece
                if len(self._text) > ANSWER_BYTES_MAX:
                    break
            self.ended = True
        if not self._ready and self._text.startswith(READY):
            self._ready = True
            self._text = self._text[len(READY) :]
            # Its start is not the check's time.
            self._asked_s, self._waited_s = self._clock(), self.waited_s()
        line, end, rest = self._text.partition(b"\n")
        if not end or not self._ready:
            return None
        self._text = rest
        return line

    def asked_for_s(self) -> float:
        return self._clock() - self._asked_s

    def waited_s(self) -> float:
        """Returns how many seconds the process was runnable and had no CPU, since its start."""
        return waited_s(self._process.pid)

    def has_hung(self) -> bool:
        if self.spec is None or self.asked_for_s() <= min(self.spec.timeout_s, START_S_MAX):
            return False
        passed_s = self.asked_for_s() - max(0.0, self.waited_s() - self._waited_s)
        if not self._ready:
            return passed_s > START_S_MAX
        limit_s = self.spec.timeout_s
        return passed_s > limit_s and (passed_s > limit_s * BUSY_TIMES or self._state() != "R")

    def where(self) -> str:
        """Returns the kernel function in which the process waits, and whether it can be interrupted; empty
        if unknown.
        """
        state = {"D": "the process cannot be interrupted (state D)", "T": "it is stopped"}.get(
            self._state(), ""
        )
        call = ""
        with suppress(OSError):
            call = Path(f"/proc/{self._process.pid}/wchan").read_text(encoding="ascii", errors="replace")
        waits = f"the process waits in {call.strip()}" if call.strip() not in ("", "0") else ""
        return "; ".join(filter(None, (waits, state)))

    def how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(1.0)
            return signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"
        return "the process closed its output"

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(OSError):
            self._requests.close()
        if self.answers >= 0:
            os.close(self.answers)
            self.answers = -1
        part_with(self._process)

    def _state(self) -> str:
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return ""
        return stat.rpartition(") ")[2][:1]


def _skipped(spec: Spec, why: str) -> Outcome:
    return Outcome(check=spec.name, area=spec.area, status=SKIP, findings=(Finding(status=SKIP, why=why),))


def _hung(spec: Spec, after_s: float, where: str) -> Outcome:
    why = f"no result after {after_s:.1f} s" + (f"; {where}" if where else "")
    finding = Finding(
        status=spec.on_hang,
        measured=f"no result within {after_s:.1f} s",
        expected=f"a result within {spec.timeout_s:g} s",
        whence="rule",
        why=why,
        advice=spec.hang_advice,
        fault=spec.on_hang_fault,
    )
    return Outcome(check=spec.name, area=spec.area, status=spec.on_hang, findings=(finding,), seconds=after_s)

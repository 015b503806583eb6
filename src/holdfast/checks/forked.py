"""Forks this process to answer checks: it starts at once, and shares the memory of imported modules.

Only for a process without threads: a lock that another thread held would stay locked in the copy for ever.
"""

import gc
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from holdfast.checks.child import serve

WAIT_LOOK_S = 0.005


class Process(Protocol):
    """The interface of both kinds of check processes, as in subprocess.Popen."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def waited_s(pid: int) -> float:
    """Seconds that a process was runnable without a CPU; 0 if the kernel does not count that."""
    try:
        counted = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
        return int(counted[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Forked:
    """`requests`: to write to; `answers`: to read from. raises: OSError, if no process can be made.

    `not_for_it`: descriptors that the child closes, because others detect our end by them.
    """

    def __init__(self, not_for_it: Iterable[int]) -> None:
        their_requests, our_requests = os.pipe()
        our_answers, their_answers = os.pipe()
        gc.collect()
        gc.freeze()  # a collection in the copy would write to, and so copy, all that is shared
        self.pid = os.fork()
        if not self.pid:
            _be_child((our_requests, our_answers, *not_for_it), their_requests, their_answers)
        os.close(their_requests)
        os.close(their_answers)
        self.requests: BinaryIO = open(our_requests, "wb")
        self.answers = our_answers
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, or minus the signal number; None while it lives."""
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # its exit status was collected elsewhere
                pid, status = self.pid, 0
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """raises: subprocess.TimeoutExpired"""
        until_s = time.monotonic() + (timeout or 0.0)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() >= until_s:
                raise subprocess.TimeoutExpired("a copy of this process", timeout)
            time.sleep(WAIT_LOOK_S)
        return code


def _be_child(close: Iterable[int], requests: int, answers: int) -> None:
    """Never returns: what stands above in the stack is the parent's."""
    code = 1
    try:
        os.setsid()  # a Ctrl-C is for the parent
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for descriptor in close:
            os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        with open(requests, "rb") as file:
            serve(file, answers)
        code = 0
    finally:
        os._exit(code)

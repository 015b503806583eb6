"""Forks this process to run checks: a fork starts at once and shares the memory of imported modules.

Only for a process without threads: a lock held by another thread would stay locked in the fork for ever.
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
    """Interface of a check process, implemented by `Forked` and by `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def waited_s(pid: int) -> float:
    """Returns how many seconds a process was runnable and had no CPU; 0 if the kernel does not count it.

    source: /proc/PID/schedstat
    """
    try:
        counted = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
        return int(counted[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Forked:
    """A fork of this process that runs checks.

    `requests`: the pipe to write names of checks to. `answers`: the pipe to read outcomes from. `not_for_it`: file
    descriptors that the child closes, because other processes would otherwise not detect that this process has closed
    them.

    raises: OSError if the process cannot be created
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
        """Returns the exit code, or the negative signal number; None while the process runs."""
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # its exit status was collected elsewhere
                pid, status = self.pid, 0
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the process and returns its exit code. Raises subprocess.TimeoutExpired."""
        until_s = time.monotonic() + (timeout or 0.0)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() >= until_s:
                raise subprocess.TimeoutExpired("a copy of this process", timeout)
            time.sleep(WAIT_LOOK_S)
        return code


def _be_child(close: Iterable[int], requests: int, answers: int) -> None:
    """Runs checks in the forked child, then exits.

    Never returns, because the calling frames belong to the parent.
    """
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

"""Child processes for the journal's tests: they write until they are killed, or meet a sick disk."""

import ctypes
import os
import signal
import struct
import subprocess
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

_CLONE_NEWNS = 0x20000
_NOT_ALLOWED = b"not allowed"


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns of forking beside the threads of a parallel test runner; our children use none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], object]) -> None:
    """Runs `work` in a child process, so that limits and mounts end with it. Its failure fails the test."""
    reading, writing = os.pipe()
    pid = _fork()
    if pid == 0:
        os.close(reading)
        try:
            work()
        except PermissionError as error:
            os.write(writing, _NOT_ALLOWED + str(error).encode())
        except BaseException:  # noqa: B036, BLE001 - the child must never return into the test runner
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    if told.startswith(_NOT_ALLOWED):
        pytest.skip(told.decode())
    assert status == 0 and not told, f"the child ended with {status}: {told.decode()}"


def mount(*arguments: str | Path) -> None:
    """Mounts for this process only; call it in a child. raises: PermissionError, where that is not allowed"""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise PermissionError("this machine does not let us have our own mounts")
    for command in (["--make-rprivate", "/"], arguments):
        done = subprocess.run(["mount", *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PermissionError(f"mount: {done.stderr}")


class Writer:
    """A child that runs `work(acknowledge)`; what it acknowledges is known here even after its death."""

    def __init__(self, work: Callable[[Callable[[int], object]], object]) -> None:
        reading, writing = os.pipe()
        self.pid = _fork()
        if self.pid == 0:
            os.close(reading)
            try:
                work(lambda number: os.write(writing, struct.pack("<Q", number)))
            finally:
                os._exit(1)
        os.close(writing)
        self._pipe = os.fdopen(reading, "rb", buffering=0)
        self.acknowledged: list[int] = []

    def wait_for_acknowledgements(self, count: int) -> None:
        while len(self.acknowledged) < count and (told := self._pipe.read(8)):
            self.acknowledged.append(struct.unpack("<Q", told)[0])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        while told := self._pipe.read(8):
            self.acknowledged.append(struct.unpack("<Q", told)[0])
        self._pipe.close()

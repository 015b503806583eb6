"""The kernel's log belongs to the whole machine: who reads it for a job is not misled by who has the kernel write there.

Readers are together, a writer is alone; tests of other processes (xdist) are meant, too.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

LOCKS = Path(__file__).parent.parent / ".pytest_cache" / "kernel-log"


class Reader:
    """From the first `begin` of this process to its last `end`."""

    def __init__(self) -> None:
        self._count, self._lock = 0, ExitStack()

    def begin(self) -> None:
        if self._count == 0:
            self._lock.enter_context(_locked(fcntl.LOCK_SH))
        self._count += 1

    def end(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._lock.close()


reader = Reader()


@contextmanager
def alone() -> Iterator[None]:
    """Nobody reads meanwhile."""
    with _locked(fcntl.LOCK_EX):
        yield


@contextmanager
def _locked(how: int) -> Iterator[None]:
    LOCKS.mkdir(parents=True, exist_ok=True)
    with (LOCKS / "gate").open("w") as gate, (LOCKS / "log").open("w") as log:
        fcntl.flock(gate, fcntl.LOCK_EX)  # while somebody waits to be alone, nobody else begins to read
        fcntl.flock(log, how)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield

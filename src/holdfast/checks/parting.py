"""Waits briefly for killed check processes, and describes how a process ended.

A busy machine takes longer to end a process, and the kernel may block a process forever. The exit status of a process
that has not ended in time is collected at a later call.
"""

import atexit
import signal
import subprocess
from contextlib import suppress

from holdfast.checks.forked import Process

MOMENT_S = 0.05

_not_gone: list[Process] = []


def part_with(process: Process, wait_s: float = MOMENT_S) -> None:
    """Collects the exit status of a killed process: within `wait_s` seconds, or else at a later call of
    this function or at the end of this program.
    """
    with suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
    _not_gone.append(process)
    _collect()


@atexit.register
def _collect() -> None:
    """Removes the processes that have ended."""
    _not_gone[:] = [one for one in _not_gone if one.poll() is None]


def how_it_ended(code: int) -> str:
    """Returns "ended with exit code 3", or "was killed by SIGBUS" for a negative code, -N for signal N."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-code}"

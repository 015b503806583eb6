"""Waits for what the kernel shows of a process that a test has started."""

import time
from pathlib import Path


def wait_for_environ(pid: int) -> None:
    """Returns when `/proc/PID/environ` shows the environment of a process that was just started.

    The kernel closes the pipe that `Popen` waits for before it sets up the new environment: the file is empty
    for a moment after `Popen` returns. Raises FileNotFoundError if the process has ended.
    """
    while not Path(f"/proc/{pid}/environ").read_bytes():
        time.sleep(0.001)

"""Starts the processes of a system that end with it. Imported by scripts that run in the system's own environment."""

import ctypes
import os
import signal
import socket
import subprocess

PR_SET_PDEATHSIG = 1


def start(command: list[str], **env: str) -> subprocess.Popen[str]:
    """Returns a process that gets SIGTERM when this one ends; stdout and stderr are one stream of lines."""
    return subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=_end_with_parent,
    )


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def drop(process: subprocess.Popen[str]) -> None:
    """Reads what the process prints and forgets it, until it ends."""
    for _ in process.stdout or ():
        pass

"""Starts the training command with its own session, default signal handlers, and output to files. Never waits
for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


class Spec:
    """Parameters of the command, as written by `launch`."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.argv: list[str] = given["argv"]
        self.env: dict[str, str] = given["env"]
        self.cwd: str = given["cwd"]
        self.folder: str = given["dir"]
        self.stdin: str = given.get("stdin") or os.devnull
        self.stdout: str = given["stdout"]
        self.stderr: str = given["stderr"]
        self.detach: bool = bool(given.get("detach"))
        self.gate: str = given.get("gate", "")
        self.lifeline_fd: int | None = given.get("lifeline_fd")
        self.client_fd: int | None = given.get("client_fd")
        self.forks_fd: int | None = given.get("forks_fd")


def become_subreaper() -> None:
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(spec: Spec) -> tuple[int, int]:
    """Forks a process for the command. Returns its pid, and a file descriptor from which the error of a
    failed exec can be read and which closes on success.

    Does not wait for the exec: a program on a dead file server must not block the reaper.
    """
    read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    reaper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_command(spec, write_end, reaper)
    os.close(write_end)
    return pid, read_end


def _become_command(spec: Spec, error_fd: int, reaper: int) -> NoReturn:
    """Replaces the forked child process by the command."""
    what = spec.stdout
    try:
        os.setsid()
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != reaper:  # it was gone before it could be a reason to die
            os._exit(127)
        for number in signal.valid_signals():
            _reset(number)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _place_output(spec)
        what = spec.cwd
        os.chdir(spec.cwd)
        what = spec.argv[0]  # not the last place on PATH where it was looked for
        os.execvpe(spec.argv[0], spec.argv, spec.env)
    except OSError as error:
        text = f"{error.errno or errno.EIO} {error.strerror}: {what}"
        os.write(error_fd, text.encode("utf-8", "replace"))
    except BaseException as error:  # noqa: BLE001 - a forked child must end here, whatever happened
        os.write(error_fd, f"{errno.EINVAL} {error!r}".encode("utf-8", "replace"))
    os._exit(127)


def _reset(number: int) -> None:
    try:
        signal.signal(number, signal.SIG_DFL)
    except (OSError, ValueError):
        pass  # SIGKILL, SIGSTOP and those of the C library


def _place_output(spec: Spec) -> None:
    sources = [os.open(spec.stdin, os.O_RDONLY)]
    for path in (spec.stdout, spec.stderr):
        try:
            sources.append(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))
        except OSError:  # a read-only or full state folder must not keep the training from running
            sources.append(os.open(os.devnull, os.O_WRONLY))
    for target, source in enumerate(sources):
        os.dup2(source, target)

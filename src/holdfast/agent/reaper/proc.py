"""Reads information about processes from /proc. Changes no process, except by `send_signal`."""

from __future__ import annotations

import os
import struct
import time
from fcntl import ioctl
from itertools import pairwise

ANCESTORS_MAX = 100
FILES_MAX = 4096
# The exit of a process that another one has collected: PIDFD_GET_INFO, Linux 6.15 and later.
PIDFD_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
PIDFD_INFO_EXIT = 1 << 3
PIDFD_INFO = struct.Struct("QQ11Ii")

# Programs that start another one and wait for it, by the name they are called by.
WRAPPERS = frozenset(
    ("sh", "ash", "bash", "dash", "ksh", "zsh", "tini", "dumb-init", "timeout", "time", "sudo", "srun")
    + (
        "env",
        "nice",
        "nohup",
        "setsid",
        "stdbuf",
        "numactl",
        "taskset",
        "uv",
        "uvx",
        "conda",
        "mamba",
        "micromamba",
    )
    + ("pixi", "poetry", "pdm", "hatch", "xvfb-run", "catchsegv", "strace", "nsys", "script", "flock")
)
LAUNCHERS = frozenset(
    ("torchrun", "accelerate", "accelerate-launch", "deepspeed", "mpirun", "mpiexec", "mpiexec.hydra")
    + ("mpirun.openmpi", "mpirun.mpich", "prterun", "prun", "orted", "prted", "hydra_pmi_proxy", "horovodrun")
    + ("msrun", "jsrun", "flux", "slurmstepd", "raylet", "gcs_server")
    # They run a notebook in a kernel, a process of its own.
    + ("jupyter", "jupyter-nbconvert", "jupyter-execute", "jupyter-run", "papermill")
)
POOLS = frozenset((b"raylet",))
LAUNCHER_MODULES = frozenset(
    (
        "torch.distributed.run",
        "torch.distributed.launch",
        "torch.distributed.launcher",
        "accelerate.commands.launch",
        "deepspeed.launcher.launch",
        "deepspeed.launcher.runner",
        "jupyter",
        "nbconvert",
        "papermill",
    )
)


def read(path: str, size_bytes: int = 1 << 16) -> bytes:
    """Returns the first bytes of a file; empty if it does not exist or cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, size_bytes)
    except OSError:
        return b""
    finally:
        os.close(fd)


def stat_fields(pid: int) -> list[bytes]:
    """Returns the fields of /proc/PID/stat from the third on: state, ppid, ...; empty if the process has
    ended.
    """
    data = read(f"/proc/{pid}/stat", 4096)
    return data[data.rfind(b")") + 2 :].split() if data else []


def state(pid: int) -> bytes:
    """Returns the process state R, S, D, Z, T, ...; empty if the process has ended."""
    return b"".join(stat_fields(pid)[:1])


def signature(pid: int) -> tuple[bytes, bytes]:
    """Returns (start time, address of the environment), a pair that changes after an exec or when the pid is
    reused.
    """
    fields = stat_fields(pid)
    return (fields[19], fields[47]) if len(fields) > 47 else (b"", b"")


def ticks_now() -> int:
    """Returns the current time in the unit of a process's start time: clock ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def progress(pid: int) -> tuple[bytes, ...]:
    """Returns state and CPU time of a process. Equal values at two times mean that the process made no
    progress.
    """
    fields = stat_fields(pid)
    return (fields[0], fields[11], fields[12]) if len(fields) > 12 else ()


def children_by_parent() -> dict[int, list[int]]:
    """Returns the children of every process of the machine, by pid. Too expensive for every second."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if len(fields) > 1:
                found.setdefault(int(fields[1]), []).append(int(name))
    return found


def descendants(root: int, below: dict[int, list[int]] | None = None) -> list[int]:
    below = children_by_parent() if below is None else below
    found, todo = [], [root]
    while todo:
        for pid in below.get(todo.pop(), ()):
            found.append(pid)
            todo.append(pid)
    return found


def children(pid: int) -> list[int]:
    """Returns the children that the main thread of a process forked, with one small read; empty on kernels
    without the file /proc/PID/task/TID/children.
    """
    return [int(word) for word in read(f"/proc/{pid}/task/{pid}/children").split()]


def ancestors(pid: int) -> list[int]:
    """Returns the ids of a process's parent, grandparent and so on, as far as they are visible."""
    found: list[int] = []
    while pid > 1 and (fields := stat_fields(pid)) and len(found) < ANCESTORS_MAX:
        pid = int(fields[1])
        found.append(pid)
    return found


def arguments(pid: int) -> tuple[str, ...]:
    """Returns the command line of a process; empty for ended processes and kernel threads."""
    data = read(f"/proc/{pid}/cmdline", 1 << 16)
    return tuple(word.decode("utf-8", "replace") for word in data.split(b"\0")[:-1])


def cpu_ticks(pid: int) -> int:
    """Returns the user and system CPU time of a process so far in clock ticks, without its children."""
    fields = stat_fields(pid)
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def open_files(pid: int) -> list[str]:
    """Returns the targets of a process's file descriptors: paths, "socket:[123]", ...; empty if reading them
    is not permitted.
    """
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = []
    for name in names[:FILES_MAX]:
        try:
            found.append(os.readlink(f"{folder}/{name}"))
        except OSError:
            continue
    return found


def outputs(pid: int) -> set[str]:
    """Returns what a process has as its standard output and standard error, as /proc names it; empty if that cannot be read.

    Asks no file system: one on a dead file server would not answer.
    """
    try:
        return {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (1, 2)}
    except OSError:
        return set()


def environment(pid: int) -> dict[bytes, bytes]:
    data = read(f"/proc/{pid}/environ", 1 << 20)
    return dict(item.split(b"=", 1) for item in reversed(data.split(b"\0")) if b"=" in item)


def is_launcher(pid: int) -> bool:
    """Returns whether a process is torchrun or similar, so that a RANK in its environment is not its own."""
    words = [word.decode("utf-8", "replace") for word in read(f"/proc/{pid}/cmdline", 4096).split(b"\0")[:6]]
    names = {word.rpartition("/")[2] for word in words[:3]}
    return bool(names & LAUNCHERS) or any(
        flag == "-m" and module in LAUNCHER_MODULES for flag, module in pairwise(words)
    )


def is_pool(pid: int) -> bool:
    """Returns whether a process is the manager of a process pool, which ends idle processes."""
    return read(f"/proc/{pid}/comm", 64).strip() in POOLS


def is_wrapper(pid: int) -> bool:
    """Returns whether a process is a shell or similar program that starts the training."""
    word = read(f"/proc/{pid}/cmdline", 4096).partition(b"\0")[0].decode("utf-8", "replace")
    return word.rpartition("/")[2].lstrip("-") in WRAPPERS


def code_of(status: int) -> int:
    """Returns the exit code of a wait status: 0..255, or -N if killed by signal N."""
    return -(status & 0x7F) if status & 0x7F else (status >> 8) & 0xFF


def code_of_zombie(pid: int, started: bytes) -> int | None:
    """Returns the exit code of an ended process that is not this process's child, before its parent collects
    it; None if it is too late.
    """
    fields = stat_fields(pid)
    if len(fields) < 50 or fields[0] not in (b"Z", b"X") or fields[19] != started:
        return None
    return code_of(int(fields[49]))


def code_of_collected(pidfd: int) -> int | None:
    """Returns the exit code of a process that its parent has collected; None if the kernel does not report
    it.
    """
    info = bytearray(PIDFD_INFO.size)
    PIDFD_INFO.pack_into(info, 0, PIDFD_INFO_EXIT, *(0,) * 13)
    try:
        ioctl(pidfd, PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, *_, status = PIDFD_INFO.unpack(info)
    return code_of(status) if mask & PIDFD_INFO_EXIT else None


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone, or become another user's

"""Reads all processes of a node from /proc. Processes that end meanwhile or may not be read are left out.

source: proc_pid_stat(5), proc_pid_environ(5)
"""

import os
from collections.abc import Iterator

from holdfast.checks.readers.node_files import NodeFiles
from holdfast.core.checks.leftovers import RANK_MARKS, Process

PROCESSES_MAX = 1 << 15
COMMAND_BYTES, ENVIRON_BYTES = 4096, 256 << 10
WANTED = ("HOLDFAST_JOB", "SLURM_JOB_ID", *RANK_MARKS)


def pids(files: NodeFiles) -> list[int]:
    return [int(name) for name in files.entries("/proc") if name.isdigit()][:PROCESSES_MAX]


def processes(files: NodeFiles, *, with_env: bool = False) -> dict[int, Process]:
    found = (process(files, pid, with_env=with_env) for pid in pids(files))
    return {one.pid: one for one in found if one is not None}


def process(files: NodeFiles, pid: int, *, with_env: bool = False) -> Process | None:
    """Returns one process; None if it has ended. `with_env`: also read its command line and environment.

    8421 (python3 (train)) S 8400 ...     the name may contain blanks and brackets, so the last bracket counts
    """
    head, bracket, rest = files.text(f"/proc/{pid}/stat").rpartition(")")
    fields = rest.split()
    if not bracket or len(fields) < 2 or not fields[1].isdigit():
        return None
    command, env = "", {}
    if with_env:
        raw = files.raw(f"/proc/{pid}/cmdline", COMMAND_BYTES)
        command = raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()
        env = dict(_wanted(files.raw(f"/proc/{pid}/environ", ENVIRON_BYTES)))
    return Process(
        pid=pid,
        parent=int(fields[1]),
        name=head.partition("(")[2],
        command=command,
        state=fields[0],
        env=env,
    )


def _wanted(raw: bytes) -> Iterator[tuple[str, str]]:
    for pair in raw.split(b"\0"):
        name, separator, value = pair.partition(b"=")
        if separator and name.decode("utf-8", "replace") in WANTED:
            yield name.decode("utf-8", "replace"), value.decode("utf-8", "replace").strip()


def own_pids(given: tuple[int, ...]) -> set[int]:
    """Returns the process ids that belong to this job: the given ones, this process and its parent, but not init."""
    found = {pid for pid in given if pid > 1} | {os.getpid(), os.getppid()}
    return found - {0, 1}

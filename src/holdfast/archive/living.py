"""Finds running processes of a job on this machine. Reads only /proc and the job's folder.

A process of an attempt has its worker's folder in its environment, which identifies it in any pid namespace; a
process with a reused pid is not mistaken for a rank. For processes of another user, whose environment is unreadable,
the reaper's record contains the pid and the start time.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
from msgspec import Struct

from holdfast.agent.reaper.rank_names import named
from holdfast.journal.jobdir import JobDir
from holdfast.observe.processes.worker_facts import worker_facts

FOLDER = b"HOLDFAST_WORKER_DIR="
ENVIRON_BYTES_MAX = 1 << 20
OVER = frozenset("ZXx")
CLOCK_S = 60.0  # tolerance for changes of the wall clock since a start was recorded


class Living(Struct, frozen=True, kw_only=True):
    """The running processes of an attempt. `ranks`: ranks with a running process.

    `processes`: number of all running processes, including launchers.
    """

    ranks: frozenset[int] = frozenset()
    processes: int = 0


class Marked(NamedTuple):
    """A process that belongs to an attempt. `folder`: its worker's folder, from its environment."""

    pid: int
    folder: bytes
    rank: int | None


class ProcessTable:
    """The processes of this machine that belong to attempts of jobs. One read of /proc serves many jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, keep_s: float = 0.0) -> None:
        """Creates a table. `keep_s`: how many seconds a read stays valid."""
        self._clock, self._keep_s = clock, keep_s
        self._read_s: float | None = None
        self._marked: list[Marked] = []
        self._hidden: set[int] = set()

    def look(self) -> tuple[list[Marked], set[int]]:
        """Returns processes with a worker folder in their environment, and pids with an unreadable
        environment.
        """
        now_s = self._clock()
        if self._read_s is None or now_s - self._read_s > self._keep_s:
            self._marked, self._hidden = _all_marked()
            self._read_s = now_s
        return self._marked, self._hidden


def living(job: JobDir, attempt: int, table: ProcessTable | None = None) -> Living:
    """Returns the running processes of one attempt on this machine."""
    marked, hidden = _marked(job, attempt, table or ProcessTable())
    ranks: set[int] = set()
    others = 0
    for folder in _workers(job, attempt):
        facts = worker_facts(folder)
        own = {one.pid: one.rank for one in marked if _name(one.folder) == folder.name}
        found = {rank.rank for rank in facts.living if rank.pid in own}
        unread = {rank.rank for rank in facts.living if rank.pid in hidden and _is_of(rank.pid, folder)}
        # In another pid namespace the recorded pids are invalid: only the environment or the record
        # identifies ranks.
        recorded = {rank for rank in own.values() if rank is not None} or {rank.rank for rank in facts.living}
        ranks |= found | unread or (recorded if own else set())
        others += len(unread)
        if not own and facts.command_pid in hidden and _is_of(facts.command_pid, folder):
            others += 1
    return Living(ranks=frozenset(ranks), processes=len(marked) + others)


def process_state(pid: int) -> str:
    """Returns the state letter of a process, as in proc(5); X if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError, UnicodeDecodeError):
        return "X"


def _marked(job: JobDir, attempt: int, table: ProcessTable) -> tuple[list[Marked], set[int]]:
    """Returns the running processes of an attempt, and pids with an unreadable environment."""
    folders = tuple(
        {
            os.fsencode(path) + b"/"
            for path in (job.attempt(attempt), job.attempt(attempt).absolute().resolve())
        }
    )
    marked, hidden = table.look()
    return [
        one for one in marked if one.folder.startswith(folders) and process_state(one.pid) not in OVER
    ], hidden


def _name(folder: bytes) -> str:
    return os.fsdecode(folder.rpartition(b"/")[2])


def _all_marked() -> tuple[list[Marked], set[int]]:
    found: list[Marked] = []
    hidden: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        pid = int(name)
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environ = file.read(ENVIRON_BYTES_MAX)
        except PermissionError:
            hidden.add(pid)
            continue
        except OSError:
            continue
        found += [Marked(pid, folder, _rank(environ)) for folder in _worker_folders(environ)]
    return found, hidden


def _worker_folders(environ: bytes) -> list[bytes]:
    """Returns the worker folders in an environment, without those of commands that users run on a worker
    (docs/exec.md).

    The folder of such a command ends with a slash.
    """
    if FOLDER not in environ:
        return []
    values = [one[len(FOLDER) :] for one in environ.split(b"\0") if one.startswith(FOLDER)]
    return [value for value in values if not value.endswith(b"/")]


def _rank(environ: bytes) -> int | None:
    values = dict(one.split(b"=", 1) for one in environ.split(b"\0") if b"=" in one)
    identity = named(lambda key: os.fsdecode(values.get(key.encode(), b"")))
    rank = identity["rank"] if identity is not None else None
    return rank if isinstance(rank, int) else None


def _workers(job: JobDir, attempt: int) -> list[Path]:
    try:
        return [path for path in job.attempt(attempt).iterdir() if path.name.startswith("worker-")]
    except OSError:
        return []


def _is_of(pid: int, folder: Path) -> bool:
    """Returns True if a process with an unreadable environment started before its worker's record was last
    written.
    """
    try:
        written_s = (folder / "reaper.jsonl").stat().st_mtime
        process = psutil.Process(pid)
        is_over = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return not is_over and process.create_time() <= written_s + CLOCK_S
    except (OSError, psutil.Error):
        return False

"""Finds processes and shared-memory files that an earlier job left on a node. Pure."""

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from holdfast.core.checks.node_findings import size, warned
from holdfast.core.plurals import counted
from holdfast.late_pattern import late
from holdfast.model.checks import RULE, Finding

ANCESTORS_MAX = 64
# Names of init processes, which adopt a process whose parent has ended.
INITS = frozenset(
    ("systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "runit", "pause")
)
RANK_MARKS = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")  # environment of a process that torchrun started
REAPER = "reaper.loop"
HOLDFAST = late(r"(?:^|[/ ])holdfast(?: |$)|-m holdfast")
# Not psm_*: named shared memory may be meant to stay.
SEGMENT = late(r"torch_(?P<torch>\d+)_|nccl-|sem\.|loky-(?P<loky>\d+)-")
SEGMENTS_BYTES, SEGMENTS_MANY = 16 << 20, 200
SEGMENT_AGE_S = 120.0  # a process may still open a younger one
NAMED_MAX = 8


class Process(Struct, frozen=True, kw_only=True):
    """A process of the node. `env`: initial environment, relevant names only; empty if it cannot be read."""

    pid: int
    parent: int
    name: str
    command: str = ""
    state: str = "S"
    env: Mapping[str, str] = {}


class Segment(Struct, frozen=True):
    """A shared-memory file in /dev/shm."""

    name: str
    bytes: int
    age_s: float


def left_processes(processes: Mapping[int, Process], own: Set[int]) -> list[tuple[Process, str]]:
    """Returns leftover processes of ended jobs, the topmost of each tree, with the job's name; empty if not
    Holdfast's.

    A running job of Holdfast has its reaper above each process, and a rank its launcher: processes adopted by
    init have outlived their job.
    """
    found = []
    for process in processes.values():
        above = ancestors(process, processes)
        if process.state == "Z" or own & {process.pid, *(one.pid for one in above)}:
            continue
        if not _is_adopted(process, processes) or any(_is_holdfast(one) for one in (process, *above)):
            continue
        job = process.env.get("HOLDFAST_JOB", "")
        if job or _is_rank(process):
            found.append((process, job))
    return found


def ancestors(process: Process, processes: Mapping[int, Process]) -> list[Process]:
    """Returns the parent of a process, its parent and so on, nearest first."""
    found: list[Process] = []
    while (
        len(found) < ANCESTORS_MAX and (above := processes.get(process.parent)) and above.pid != process.pid
    ):
        found.append(above)
        process = above
    return found


def _is_adopted(process: Process, processes: Mapping[int, Process]) -> bool:
    """Returns whether init is the parent because the original parent has ended.

    The first process of a container has the parent 0, and is no orphan.
    """
    parent = processes.get(process.parent)
    return parent is not None and (parent.pid == 1 or parent.name in INITS)


def _is_holdfast(process: Process) -> bool:
    return REAPER in process.command or HOLDFAST.search(process.command) is not None


def _is_rank(process: Process) -> bool:
    """Returns whether the process is a rank that torchrun started; Slurm ends leftover processes of its jobs
    itself.
    """
    return all(name in process.env for name in RANK_MARKS) and "SLURM_JOB_ID" not in process.env


def judge_left_processes(found: Sequence[tuple[Process, str]]) -> list[Finding]:
    """Returns findings on processes that an earlier run left on the node."""
    return [
        warned(
            f"{process.name} (pid {process.pid})",
            "no process of a job that has ended",
            RULE,
            device=f"pid {process.pid}",
            why=f"pid {process.pid} ({process.name}) is left over from job {job}, which has ended"
            if job
            else f"pid {process.pid} ({process.name}) is a rank of a training whose launcher has ended",
            en=f"End it: `kill {process.pid}`, after some seconds `kill -9 {process.pid}`; it may hold GPU memory.",
            zh=f"结束该进程：`kill {process.pid}`，数秒后 `kill -9 {process.pid}`；它可能占用显存。",
            category="gpu_busy",
        )
        for process, job in found[:NAMED_MAX]
    ]


def left_segments(segments: Sequence[Segment], alive: Set[int], mapped: Set[str]) -> list[Segment]:
    """Returns the segments of PyTorch, NCCL and semaphores that no process has open.

    `mapped`: names that a process has open.
    """
    found = []
    for one in segments:
        kind = SEGMENT.match(one.name)
        if kind is None or one.name in mapped or one.age_s < SEGMENT_AGE_S:
            continue
        maker = kind["torch"] or kind["loky"]
        if maker is None or int(maker) not in alive:
            found.append(one)
    return found


def judge_left_segments(found: Sequence[Segment]) -> list[Finding]:
    """Returns a finding on leftover segments if they are large or many; every crash leaves dozens of small,
    harmless ones.
    """
    total = sum(one.bytes for one in found)
    if total < SEGMENTS_BYTES and len(found) < SEGMENTS_MANY:
        return []
    names = ", ".join(one.name for one in sorted(found, key=lambda one: -one.bytes)[:4])
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return [
        warned(
            f"{counted(len(found), 'file')}, {size(total)}: {names}{more}",
            "none that no process has open",
            RULE,
            device="/dev/shm",
            why=f"{size(total)} of shared memory are left over from processes that have ended",
            en="Delete them: `rm /dev/shm/NAME` for each, or all torch_*, nccl-* and sem.* while no training runs.",
            zh="删除这些文件：`rm /dev/shm/文件名`；无训练运行时可清除全部 torch_*、nccl-*、sem.*。",
            category="shm_oom",
        )
    ]

"""Checks processes of the node: zombies, processes blocked in the kernel, and leftovers of earlier jobs."""

import time
from collections import Counter
from collections.abc import Iterator

from holdfast.checks.io.limits import is_root
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.readers.process_table import own_pids, pids, process, processes
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.host import Blocked, judge_processes
from holdfast.core.checks.leftovers import (
    Process,
    Segment,
    judge_left_processes,
    judge_left_segments,
    left_processes,
    left_segments,
)
from holdfast.core.checks.node_findings import passed, skipped
from holdfast.model.checks import (
    BOOT,
    CONTINUOUS,
    EPILOG,
    MANUAL,
    ON_FAILURE,
    PROLOG,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

LOOKS, BETWEEN_S = 10, 0.5  # blocked in all of them, without having run at all
KTHREADD = 2  # the parent of the kernel's own threads
SHM = "/dev/shm"
SEGMENTS_MAX = 20_000
MAPS_BYTES = 8 << 20
FIRST_PID_NAMESPACE, FIRST_IPC_NAMESPACE = "pid:[4026531836]", "ipc:[4026531839]"


def look_at_processes(scene: Scene) -> Iterator[Seen]:
    """Yields findings about zombie processes and, if the check may take a few seconds, about processes blocked in the
    kernel.
    """
    files = NodeFiles(scene)
    found = processes(files)
    if not found:
        yield skipped("no process is visible in /proc")
        return
    zombies: Counter[str] = Counter()
    for one in found.values():
        if one.state == "Z" and (parent := found.get(one.parent)):
            zombies[f"{parent.name} (pid {parent.pid})"] += 1
    blocked = [] if scene.quick else _blocked(files, found)
    yield from judge_processes(zombies, blocked)


def _blocked(files: NodeFiles, found: dict[int, Process]) -> list[Blocked]:
    waiting = {
        one.pid: _turns(files, one.pid) for one in found.values() if one.state == "D" and _is_user(one)
    }
    for _ in range(LOOKS):
        if not waiting:
            return []
        time.sleep(BETWEEN_S)
        for pid, turns in list(waiting.items()):
            now = process(files, pid)
            if now is None or now.state != "D" or _turns(files, pid) != turns:
                del waiting[pid]
    return [Blocked(pid, found[pid].name, _where(files, pid), LOOKS * BETWEEN_S) for pid in sorted(waiting)]


def _is_user(one: Process) -> bool:
    return one.parent != KTHREADD and one.pid != KTHREADD


def _turns(files: NodeFiles, pid: int) -> tuple[str, ...]:
    """Returns the context switch counters of a process; if they do not change, the process has not run in
    between.
    """
    return tuple(line for line in files.text(f"/proc/{pid}/status").splitlines() if "ctxt_switches" in line)


def _where(files: NodeFiles, pid: int) -> str:
    name = files.word(f"/proc/{pid}/wchan")
    return "" if name == "0" else name


def look_at_leftovers(scene: Scene) -> Iterator[Seen]:
    files = NodeFiles(scene)
    found = processes(files, with_env=True)
    if not found:
        yield skipped("no process is visible in /proc")
        return
    left = judge_left_processes(left_processes(found, own_pids(scene.own_pids)))
    left += _segments(files, scene)
    yield from left or [passed("no processes or shared memory left by earlier jobs")]


def _segments(files: NodeFiles, scene: Scene) -> list[Finding]:
    segments = list(_in_shm(files, scene.now_s or time.time()))
    first = left_segments(segments, set(), set())
    if not first or not _sees_all(files):
        return []
    return judge_left_segments(left_segments(segments, set(pids(files)), set(_mapped(files))))


def _in_shm(files: NodeFiles, now_s: float) -> Iterator[Segment]:
    for name in files.entries(SHM)[:SEGMENTS_MAX]:
        try:
            status = files.place(f"{SHM}/{name}").lstat()
        except OSError:
            continue
        yield Segment(name, status.st_blocks * 512, now_s - max(status.st_mtime, status.st_ctime))


def _sees_all(files: NodeFiles) -> bool:
    """Returns whether every process that may use the shared memory of this node is visible here."""
    if files.root != "/":
        return True
    own, shared = files.link("/proc/self/ns/pid"), files.link("/proc/self/ns/ipc")
    return is_root(files) and not (own != FIRST_PID_NAMESPACE and shared == FIRST_IPC_NAMESPACE)


def _mapped(files: NodeFiles) -> Iterator[str]:
    """Yields the names in /dev/shm that some process has mapped or open."""
    for pid in pids(files):
        maps = files.raw(f"/proc/{pid}/maps", MAPS_BYTES)
        if b"/dev/shm/" in maps:
            for line in maps.split(b"\n"):
                name = line.partition(b"/dev/shm/")[2]
                if name:
                    yield name.decode("utf-8", "replace")
        for fd in files.entries(f"/proc/{pid}/fd"):
            target = files.link(f"/proc/{pid}/fd/{fd}")
            if target.startswith("/dev/shm/"):
                yield target.removeprefix("/dev/shm/")


CHECKS = (
    Check(
        Spec(
            name="host-processes",
            area="host",
            what=Words(en="zombies, and processes blocked in the kernel", zh="僵尸进程与阻塞在内核中的进程"),
            contexts=(BOOT, PROLOG, EPILOG, CONTINUOUS, ON_FAILURE, MANUAL),
            timeout_s=10.0,
            quick=True,
        ),
        look_at_processes,
    ),
    Check(
        Spec(
            name="host-leftovers",
            area="host",
            what=Words(
                en="processes and shared memory left by earlier jobs", zh="先前作业残留的进程与共享内存"
            ),
            contexts=(BOOT, PROLOG, EPILOG, ON_FAILURE, MANUAL),
            timeout_s=8.0,
            quick=True,
        ),
        look_at_leftovers,
    ),
)

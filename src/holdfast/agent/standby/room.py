"""Decides whether this node has room for a zygote and for what is forked from it, by memory and processes left."""

from msgspec import Struct

from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.readers.own_cgroup import memory_limit, pids_left
from holdfast.model.checks import Scene
from holdfast.observe.host.node_counters import parse_meminfo

# With torch, 8 ranks that wait and their zygote take 333 MiB, while it is made 220 MiB of its own (docs/benchmarks.md).
MEMORY_BYTES = 1 << 30
PROCESSES = 128  # threads count, too
SHARE = 0.5  # of the memory left, that a zygote may take


class Left(Struct, frozen=True):
    """What this process may still use. `memory_bytes`: the least of the machine's available memory and of what its control
    groups leave. `processes`: what its control groups leave; None: no limit.
    """

    memory_bytes: int
    processes: int | None


def left(root: str = "/") -> Left:
    """Reads what is left on this node. `root`: the folder in which /proc and /sys are read."""
    files = NodeFiles(Scene(root=root))
    limit = memory_limit(files)
    found = [] if limit is None else [max(0, limit.limit_bytes - limit.used_bytes)]
    found += [parse_meminfo(files.text("/proc/meminfo")).get("MemAvailable", 0)]
    return Left(min(found), pids_left(files))


def why_no_room(left: Left, memory_bytes: int = MEMORY_BYTES) -> str:
    """Returns why there is no room for a zygote; empty if there is. `memory_bytes`: what is to be left."""
    if left.memory_bytes < memory_bytes:
        return f"{left.memory_bytes >> 20} MiB of memory are left, less than {memory_bytes >> 20} MiB"
    if left.processes is not None and left.processes < PROCESSES:
        return f"the control group allows {left.processes} more processes, less than {PROCESSES}"
    return ""


def limit_kib(left: Left, most_kib: int) -> int:
    """Returns how much memory a zygote may take, in KiB, and at most `most_kib`."""
    return min(most_kib, int(left.memory_bytes * SHARE) >> 10)

"""Reads the cgroup limits of this process for CPU time, memory and number of processes; cgroup versions 1 and
2.

All levels of the hierarchy are read, because a limit of a parent holds too.

source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/
"""

from collections.abc import Iterator

from msgspec import Struct

from holdfast.checks.readers.node_files import NodeFiles

FOLDER = "/sys/fs/cgroup"
UNLIMITED_BYTES = 1 << 60  # version 1 writes 9223372036854771712
LEVELS_MAX = 32


class MemoryLimit(Struct, frozen=True):
    """A cgroup memory limit and the current usage, in bytes; `used_bytes` leaves out reclaimable file
    cache.
    """

    limit_bytes: int
    used_bytes: int


def cpu_quota(files: NodeFiles) -> float | None:
    """Returns the CPU quota of this process's cgroup as a number of CPUs; None if there is no quota."""
    found = []
    for here in _levels(files, "cpu"):
        quota, _, period = files.word(f"{here}/cpu.max").partition(" ")
        if not quota:
            quota, period = files.word(f"{here}/cpu.cfs_quota_us"), files.word(f"{here}/cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_limit(files: NodeFiles) -> MemoryLimit | None:
    """Returns the memory limit of the cgroup level with the least memory left; None if no level has a
    limit.
    """
    found = []
    for here in _levels(files, "memory"):
        limit = files.word(f"{here}/memory.max") or files.word(f"{here}/memory.limit_in_bytes")
        used = files.number(f"{here}/memory.current")
        used = files.number(f"{here}/memory.usage_in_bytes") if used is None else used
        if limit.isdigit() and int(limit) < UNLIMITED_BYTES and used is not None:
            stat = dict(
                line.split()[:2] for line in files.text(f"{here}/memory.stat").splitlines() if " " in line
            )
            cache = int(stat.get("total_inactive_file") or stat.get("inactive_file") or 0)
            found.append(MemoryLimit(int(limit), max(0, used - cache)))
    return min(found, key=lambda one: one.limit_bytes - one.used_bytes, default=None)


def pids_left(files: NodeFiles) -> int | None:
    found = []
    for here in _levels(files, "pids"):
        limit, used = files.word(f"{here}/pids.max"), files.number(f"{here}/pids.current")
        if limit.isdigit() and used is not None:
            found.append(max(0, int(limit) - used))
    return min(found, default=None)


def _levels(files: NodeFiles, controller: str) -> Iterator[str]:
    """Yields the folder of this process's cgroup and those of its parents.

    In a container the path may be valid only on the host, so the root of the hierarchy is included.
    """
    for line in files.text("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            roots = [f"{FOLDER}/{controllers}", f"{FOLDER}/{controller}"]
        elif number == "0" and not controllers:
            roots = [FOLDER, f"{FOLDER}/unified"]
        else:
            continue
        for root in roots:
            if files.exists(root):
                yield from _upwards(root, path)
                break


def _upwards(root: str, path: str) -> Iterator[str]:
    parts = [part for part in path.split("/") if part not in ("", "..")][:LEVELS_MAX]
    for count in range(len(parts), -1, -1):
        yield "/".join((root, *parts[:count]))

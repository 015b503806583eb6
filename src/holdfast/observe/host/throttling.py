r"""Reads how long CPU quotas have throttled the cgroups of a process.

It only reads and never raises; what cannot be read is left out. A quota may be set on the process's own
cgroup or on a parent (such as a pod's); the time is the sum over all levels. A process may be moved to
another cgroup at any time, so only growth between two samples counts.

    v2  cpu.stat  "nr_periods 31\nnr_throttled 22\nthrottled_usec 1318763\n"     cpu.max "20000 100000", "max 100000"
    v1  cpu.stat  "nr_periods 31\nnr_throttled 22\nthrottled_time 1318763147\n"  cpu.cfs_quota_us, cpu.cfs_period_us

source: Linux, Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst; cgroups(7)
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from msgspec import Struct

ROOT = Path("/")
FILE_BYTES_MAX = 64 << 10
LEVELS_MAX = 32
MOUNTS_EVERY = 60  # samples between two looks at where the groups are mounted


class Throttling(Struct, frozen=True, kw_only=True):
    """CPU throttling of a process since the first sample.

    `quota`: number of CPUs that the lowest limit allows; None if none.
    """

    throttled_s: float = 0.0
    periods: int = 0  # in which it wanted to run, of the groups with a quota
    throttled_periods: int = 0
    quota: float | None = None


class _Mount(NamedTuple):
    """A mounted cgroup hierarchy: the cgroup path `root` appears at the folder `point`."""

    is_v2: bool
    root: str
    point: Path


class _Counts(NamedTuple):
    throttled_s: float
    periods: int
    throttled_periods: int


class ThrottleReader:
    """Reader of the CPU throttling of one process. `root`: the folder that holds proc and sys, for tests."""

    def __init__(self, pid: int, root: Path = ROOT) -> None:
        self._root = root
        self._groups = root / "proc" / str(pid) / "cgroup"
        self._mounts: list[_Mount] = []
        self._samples = 0
        self._before: dict[Path, _Counts] = {}
        self._sum = _Counts(0.0, 0, 0)

    def sample(self) -> Throttling | None:
        """Returns the throttling since the first sample; None if the process has ended or its cgroups
        cannot be read.
        """
        if self._samples % MOUNTS_EVERY == 0:
            self._mounts = parse_mounts(_read(self._root / "proc/self/mountinfo"), self._root)
        self._samples += 1
        seen: dict[Path, _Counts] = {}
        quotas = []
        for is_v2, folder in self._folders():
            text = _read(folder / "cpu.stat")
            if not text:
                continue
            seen[folder] = parse_stat(text)
            quotas.append(parse_max(_read(folder / "cpu.max")) if is_v2 else _quota_v1(folder))
        if not seen:
            self._before = {}
            return None
        for folder, counts in seen.items():
            self._add(self._before.get(folder, counts), counts)
        self._before = seen
        limits = [quota for quota in quotas if quota is not None]
        return Throttling(
            throttled_s=self._sum.throttled_s,
            periods=self._sum.periods,
            throttled_periods=self._sum.throttled_periods,
            quota=min(limits, default=None),
        )

    def _add(self, before: _Counts, now: _Counts) -> None:
        """Adds the growth of the counters; a cgroup recreated under the same name counts from zero, which
        is no growth.
        """
        total = self._sum
        self._sum = _Counts(
            total.throttled_s + max(0.0, now.throttled_s - before.throttled_s),
            total.periods + max(0, now.periods - before.periods),
            total.throttled_periods + max(0, now.throttled_periods - before.throttled_periods),
        )

    def _folders(self) -> Iterator[tuple[bool, Path]]:
        """Yields the folders of the process's cgroups and of their parents, as far as they are visible."""
        for is_v2, path in parse_groups(_read(self._groups)):
            for mount in self._mounts:
                inside = _below(path, mount.root) if mount.is_v2 == is_v2 else None
                if inside is None:
                    continue
                levels = [inside, *inside.parents][:LEVELS_MAX]
                yield from ((is_v2, mount.point / level) for level in levels)
                break


def parse_groups(text: str) -> list[tuple[bool, str]]:
    """Parses /proc/PID/cgroup and returns the cgroups with a CPU controller, as pairs (is version 2, path).

    1:cpu,cpuacct:/slurm/job_7
    0::/user.slice
    """
    found = []
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/") or ".." in path.split("/"):
            continue
        if number == "0" and not controllers:
            found.append((True, path))
        elif "cpu" in controllers.split(","):
            found.append((False, path))
    return found


def parse_mounts(text: str, root: Path = ROOT) -> list[_Mount]:
    """Parses /proc/self/mountinfo and returns the mounted cgroup hierarchies with a CPU controller.

    34 25 0:30 /docker/4f1c /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu
    """
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        is_v1 = kind[0] == "cgroup" and "cpu" in kind[2].split(",")
        if is_v1 or kind[0] == "cgroup2":
            point = root / _unescaped(fields[4]).lstrip("/")
            found.append(_Mount(not is_v1, _unescaped(fields[3]), point))
    return found


def parse_stat(text: str) -> _Counts:
    """Parses cpu.stat of cgroup version 1 or 2.

    A missing counter is 0, because cgroups without a quota have none.
    """
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.strip().isdecimal():
            values[name] = int(number)
    throttled_s = values.get("throttled_usec", 0) / 1e6 + values.get("throttled_time", 0) / 1e9
    return _Counts(throttled_s, values.get("nr_periods", 0), values.get("nr_throttled", 0))


def parse_max(text: str) -> float | None:
    """Parses cpu.max: 0.2 CPUs for `20000 100000`, None for `max 100000` and other forms."""
    quota, _, period = text.strip().partition(" ")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return parse_max(f"{quota.strip()} {period.strip()}")


def _below(path: str, root: str) -> PurePosixPath | None:
    """Returns `path` relative to `root`; None if it lies outside and is not visible here."""
    try:
        return PurePosixPath(path).relative_to(root)
    except ValueError:
        return None


def _unescaped(path: str) -> str:
    r"""Replaces the octal escapes of blanks in paths, such as \040. source: proc(5)"""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""

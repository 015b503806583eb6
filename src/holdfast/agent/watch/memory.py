"""Detects whether the kernel killed a rank for lack of memory, by the cgroup counter and the kernel log.

Sources that cannot be read (no kernel log in a container, no cgroup files) give no evidence.
"""

from collections.abc import Iterable

from holdfast.observe.host.kernel import NewKernelLines, OomWatch
from holdfast.parsers.kernel_lines import oom_kills, oom_words


class MemoryWatch:
    """Detector of kills by the OOM killer. It starts with the attempt, so that earlier kills are not
    counted.
    """

    def __init__(self) -> None:
        self._kernel = NewKernelLines()
        self._cgroup: OomWatch | None = None

    def rank_found(self, pid: int) -> None:
        """Finds the cgroup's OOM counter for a rank while the rank lives."""
        if self._cgroup is None:
            self._cgroup = OomWatch(pid)

    def kills(self, pids: Iterable[int]) -> tuple[str, ...]:
        """Returns sentences about kills since the attempt began: of these processes, or of any process in
        their cgroup.
        """
        wanted = set(pids)
        found = oom_kills(self._kernel.read())
        said = [oom_words(kill) for kill in found if kill.pid in wanted or kill.pid == 0]
        if said or self._cgroup is None or not self._cgroup.new_kills():
            return tuple(said)
        return ("the job's memory cgroup counted an OOM kill",)

    def close(self) -> None:
        self._kernel.close()

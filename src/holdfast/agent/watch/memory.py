"""Detects whether the kernel killed a rank for lack of memory: cgroup counter and kernel log.

What may not be read (no kernel log in a container, no cgroup files) is simply no evidence.
"""

from collections.abc import Iterable

from holdfast.observe.host.kernel import OomWatch, read_kernel_log
from holdfast.parsers.kernel_lines import oom_kills, oom_words


class MemoryWatch:
    """Begun with the attempt, so that an older kill is not taken for this one."""

    def __init__(self) -> None:
        self._since = read_kernel_log().next_sequence
        self._cgroup: OomWatch | None = None

    def rank_found(self, pid: int) -> None:
        """Its cgroup's counter must be found while it lives."""
        if self._cgroup is None:
            self._cgroup = OomWatch(pid)

    def kills(self, pids: Iterable[int]) -> tuple[str, ...]:
        """Sentences on kills since the attempt began: of these processes, or of some process of their cgroup."""
        wanted = set(pids)
        log = read_kernel_log(since_sequence=self._since)
        said = [oom_words(kill) for kill in oom_kills(log.lines) if kill.pid in wanted or kill.pid == 0]
        if said or self._cgroup is None or not self._cgroup.new_kills():
            return tuple(said)
        return ("the job's memory cgroup counted a kill for want of memory",)

"""The one clock of a job: seconds since the Unix epoch, driven by the monotonic clock.

It never goes back and never jumps while a process lives, whatever the wall clock does; a process that resumes a job
starts no earlier than the journal's last entry.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    def __call__(self) -> float: ...


class JobClock:
    """`wall`, `monotonic`: sources of time, in seconds."""

    def __init__(
        self,
        not_before_s: float = 0.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._start_s = max(wall(), not_before_s)
        self._base_s = monotonic()

    def __call__(self) -> float:
        return self._start_s + (self._monotonic() - self._base_s)

    def not_before(self, at_s: float) -> None:
        """Continues from `at_s` if the wall clock is earlier."""
        self._start_s += max(0.0, at_s - self())

    def of_wall(self, wall_s: float) -> float:
        """The job's time of a moment that another process has just stamped with the wall clock."""
        return min(self(), self() - max(0.0, self._wall() - wall_s))

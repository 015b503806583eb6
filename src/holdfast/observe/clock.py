"""Provides the clock of a job: seconds since the Unix epoch, advanced by the monotonic clock.

It never goes back and never jumps while a process lives, even if the wall clock is set. A process that
resumes a job starts it no earlier than the last entry of the journal.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    def __call__(self) -> float: ...


class JobClock:
    """The clock of a job. Calling it returns seconds since the Unix epoch.

    `wall`, `monotonic`: functions that return the wall clock and the monotonic clock, in seconds.
    """

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
        """Sets the clock forward to `at_s` if it is earlier."""
        self._start_s += max(0.0, at_s - self())

    def of_wall(self, wall_s: float) -> float:
        """Converts a wall clock time that another process has just recorded to the job's clock.

        Never later than now.
        """
        return min(self(), self() - max(0.0, self._wall() - wall_s))

"""The one clock of a job: seconds since the Unix epoch, steered by the monotonic clock.

It never goes back and never jumps while a process lives, whatever is done to the wall clock; a process
that takes a job up again goes on no earlier than where the journal stopped.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    def __call__(self) -> float: ...


class JobClock:
    """`wall`, `monotonic`: where time comes from, in seconds."""

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
        """Goes on from `at_s` where the wall clock says that it is earlier."""
        self._start_s += max(0.0, at_s - self())

    def of_wall(self, wall_s: float) -> float:
        """The job's time of a moment that another process stamped with the wall clock just now."""
        return min(self(), self() - max(0.0, self._wall() - wall_s))

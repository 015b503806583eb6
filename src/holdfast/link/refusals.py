"""Limits how many refused connections are reported."""

import math

from holdfast.link.arrived import Refused


class Refusals:
    """A rate limit on the reports of refused connections: at most `a_minute` are reported in each minute."""

    def __init__(self, a_minute: int) -> None:
        self._a_minute = a_minute
        self._from_s = -math.inf
        self._count = 0

    def noted(self, address: str, why: str, now_s: float) -> Refused | None:
        """Counts a refused connection, and returns what to report about it; None if the limit of this minute is
        exceeded.
        """
        if now_s - self._from_s > 60:
            self._from_s, self._count = now_s, 0
        self._count += 1
        if self._count < self._a_minute:
            return Refused(address, why)
        if self._count > self._a_minute:
            return None
        return Refused(
            address,
            f"{why}; {self._count} connections were refused within a minute: further ones are not reported",
        )

"""Limits how many refused connections are reported."""

import math

from holdfast.link.arrived import Refused


class Refusals:
    """Reports each refusal until there were `a_minute` of them within a minute, then none until that minute is over."""

    def __init__(self, a_minute: int) -> None:
        self._a_minute = a_minute
        self._from_s = -math.inf
        self._count = 0

    def noted(self, address: str, why: str, now_s: float) -> Refused | None:
        """What to report of this refusal, if anything."""
        if now_s - self._from_s > 60:
            self._from_s, self._count = now_s, 0
        self._count += 1
        if self._count < self._a_minute:
            return Refused(address, why)
        if self._count > self._a_minute:
            return None
        return Refused(
            address,
            f"{why}; {self._count} connections were refused within a minute: no more are reported until it is over",
        )

"""Computes the increase of a counter and the time of its start; counters restart at boot. Pure."""

from msgspec import Struct

SINCE_LEARNED, SINCE_BOOT = "the first good boot", "boot"


class Sample(Struct, frozen=True):
    """A counter's value at a time. `at_s`: seconds since the epoch."""

    value: int
    at_s: float


def risen(value: int, before: Sample | None, *, now_s: float, uptime_s: float) -> tuple[int, float, str]:
    """Returns the increase of a counter, its duration in seconds, and its starting point: the baseline, or boot if
    the node restarted since.
    """
    if before is not None and value >= before.value and now_s - uptime_s <= before.at_s < now_s:
        return value - before.value, now_s - before.at_s, SINCE_LEARNED
    return value, uptime_s, SINCE_BOOT

"""Computes by how much a counter rose and since when; counters restart at boot. Pure."""

from msgspec import Struct

SINCE_LEARNED, SINCE_BOOT = "the first good boot", "boot"


class Sample(Struct, frozen=True):
    """A counter's value. `at_s`: Unix time."""

    value: int
    at_s: float


def risen(value: int, before: Sample | None, *, now_s: float, uptime_s: float) -> tuple[int, float, str]:
    """The increase, the time in seconds, and the start: the baseline, or boot if the counter restarted since."""
    if before is not None and value >= before.value and now_s - uptime_s <= before.at_s < now_s:
        return value - before.value, now_s - before.at_s, SINCE_LEARNED
    return value, uptime_s, SINCE_BOOT

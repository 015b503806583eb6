"""Prints the lines of a platform's slowdown rule for a training, each with its time, identical to the platform's.

    2025-04-21 15:19:58 Command running...
    2025-04-21 15:25:56 Smoothed mean (iters 83-87: 9465.00 ms, baseline: 3101.00 ms), threshold ratio:2.05. Warning

Times are those of the log's own stamps, in the log's own clock. Where a stamp lacks the date, the last one is of the day
on which the log was last written. Where lines have no stamps, the log's last step ended when it was last written, and
the time of every other line is counted back from there by the times of the steps between.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from holdfast.core.steps.report import LogSteps
from holdfast.model.matches import ASSUMED_DATES_S, DAY_UNKNOWN_S

RUNNING = "Command running..."
NO_DAY, NO_YEAR = ASSUMED_DATES_S


def rule_lines(log: LogSteps, *, is_local: bool) -> Iterator[str]:
    """The lines. `is_local`: timestamps are seconds since the epoch by this machine's clock, shown in its zone."""
    clock = _Clock(log, is_local=is_local)
    yield f"{clock.time(log.begin_s, 0.0)} {RUNNING}"
    for line in log.platform:
        yield f"{clock.time(line.at_s, line.elapsed_s)} {line.text}"


class _Clock:
    """Times of one log. A training that was read while it ran may well have been written to a moment ago."""

    def __init__(self, log: LogSteps, *, is_local: bool) -> None:
        self._log, self._is_local = log, is_local
        self._written = datetime.fromtimestamp(log.written_s, UTC).astimezone()
        self._first = _moment(log.begin_s)
        self._last = _moment(log.last_s) or self._first

    def time(self, at_s: float | None, elapsed_s: float) -> str:
        when = _moment(at_s)
        if at_s is None or when is None or self._first is None or self._last is None:
            when = self._written - timedelta(seconds=max(0.0, self._log.elapsed_s - elapsed_s))
        elif self._is_local:
            when = when.astimezone()
        elif NO_DAY[0] <= at_s < NO_DAY[1]:
            when += timedelta(days=(self._written.date() - self._last.date()).days)
        elif NO_YEAR[0] <= at_s < NO_YEAR[1]:
            is_year_before = (when.month, when.day) > (self._last.month, self._last.day)
            return f"{self._written.year - is_year_before}-{when:%m-%d %H:%M:%S}"
        return f"{when:%Y-%m-%d %H:%M:%S}"


def _moment(at_s: float | None) -> datetime | None:
    """None for what counts from another origin, such as a boot."""
    if at_s is None or at_s < DAY_UNKNOWN_S:
        return None
    try:
        return datetime.fromtimestamp(at_s, UTC)
    except (OverflowError, OSError, ValueError):
        return None

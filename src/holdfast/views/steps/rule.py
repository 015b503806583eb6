"""Prints the log lines of a training platform's rule for slow training, with the same text and times as the
platform.

    2025-04-21 15:19:58 Command running...
    2025-04-21 15:25:56 Smoothed mean (iters 83-87: 9465.00 ms, baseline: 3101.00 ms), threshold ratio:2.05. Warning

Times come from the timestamps in the log, in the log's own clock. If timestamps lack the date, the last one
is of the day on which the log was last written. If lines have no timestamps, the last step ended when the log
was last written, and other times are counted back from there with the step times.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from holdfast.core.steps.report import LogSteps
from holdfast.model.matches import ASSUMED_DATES_S, DAY_UNKNOWN_S

RUNNING = "Command running..."
NO_DAY, NO_YEAR = ASSUMED_DATES_S


def rule_lines(log: LogSteps, *, is_local: bool) -> Iterator[str]:
    """Yields the log lines that the platform's rule would print for this log.

    `is_local`: timestamps are seconds since the epoch, shown in this machine's time zone.
    """
    clock = _Clock(log, is_local=is_local)
    yield f"{clock.time(log.begin_s, 0.0)} {RUNNING}"
    for line in log.platform:
        yield f"{clock.time(line.at_s, line.elapsed_s)} {line.text}"


class _Clock:
    """Converts timestamps of one log to times of day.

    A log read while the training ran was last written just now.
    """

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
    """Returns a timestamp as date and time; None if it counts from another origin, such as a boot."""
    if at_s is None or at_s < DAY_UNKNOWN_S:
        return None
    try:
        return datetime.fromtimestamp(at_s, UTC)
    except (OverflowError, OSError, ValueError):
        return None

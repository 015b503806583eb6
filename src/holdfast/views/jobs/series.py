"""Reduces long series to the resolution of a chart: step times in buckets, marks for events. Pure."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct

from holdfast.core.job.story import Summary
from holdfast.model.documents.jobs import Bucket, LogLine, Mark, StepSeries

FINDING_MARKS = frozenset(
    {"slowdown", "platform-slowdown", "straggler", "loss-nan", "loss-diverged", "step-stands"}
)
MARKS_MAX = 500


class Steps:
    """The times at which a job reached its steps, as parallel arrays in ascending order: time, step, attempt."""

    def __init__(self) -> None:
        self.at_s: array[float] = array("d")
        self.step: array[int] = array("q")
        self.attempts: array[int] = array("l")

    def add(self, at_s: float, step: int, attempt: int) -> None:
        self.at_s.append(at_s)
        self.step.append(step)
        self.attempts.append(attempt)


class _Interval(Struct, frozen=True, gc=False):
    """Interval of a series: `count` steps from `first_step` on, each of `each_s` seconds; the last was
    reached at `at_s`.
    """

    at_s: float
    first_step: int
    count: int
    each_s: float


def step_series(
    steps: Steps, *, from_s: float | None, to_s: float | None, points: int, marks: Sequence[Mark] = ()
) -> StepSeries:
    """Returns step times, averaged in buckets of equal duration, without empty buckets.

    `points`: the maximum number of buckets. A journal has at most one entry a second, so a step time is the mean over
    the steps of that second.
    """
    if not steps.at_s:
        return StepSeries(buckets=(), marks=tuple(marks))
    first_s, last_s = steps.at_s[0], steps.at_s[-1]
    low_s = first_s if from_s is None else max(from_s, first_s)
    high_s = last_s if to_s is None else min(to_s, last_s)
    found = list(_intervals(steps, low_s, high_s))
    return StepSeries(
        buckets=tuple(_buckets(found, low_s, high_s, max(1, points))),
        marks=tuple(mark for mark in marks if _is_within(mark, low_s, high_s)),
        steps=sum(one.count for one in found),
        from_s=low_s,
        to_s=max(low_s, high_s),
    )


def marks_of(summary: Summary, findings: Sequence[LogLine]) -> tuple[Mark, ...]:
    """Returns the events to mark in a chart: attempts, incidents until recovery, and findings; the newest if there
    are too many.
    """
    marks = [
        Mark(
            kind="attempt",
            at_s=one.started_at_s,
            step=one.first_step,
            text=str(one.number),
        )
        for one in summary.attempts
    ]
    for one in summary.incidents:
        until_s = one.found_at_s + one.took_s if one.took_s is not None else None
        marks.append(
            Mark(
                kind="incident",
                at_s=one.found_at_s,
                until_s=until_s,
                step=one.step_before,
                text=one.verdict.title if one.verdict is not None else one.found,
                incident=one.number,
            )
        )
    marks += [
        Mark(kind=line.finding, at_s=line.at_s, text=line.text)
        for line in findings
        if line.finding in FINDING_MARKS
    ]
    return tuple(sorted(marks, key=lambda mark: mark.at_s)[-MARKS_MAX:])


def _intervals(steps: Steps, low_s: float, high_s: float) -> Iterator[_Interval]:
    """Yields the intervals between entries of one attempt. A step number that falls starts a new count."""
    begin = max(1, bisect_left(steps.at_s, low_s))
    end = bisect_right(steps.at_s, high_s)
    at_s, step, attempts = steps.at_s, steps.step, steps.attempts
    for place in range(begin, end):
        count = step[place] - step[place - 1]
        took_s = at_s[place] - at_s[place - 1]
        if attempts[place] == attempts[place - 1] and count > 0 and took_s >= 0:
            yield _Interval(at_s[place], step[place - 1] + 1, count, took_s / count)


def _buckets(found: list[_Interval], low_s: float, high_s: float, points: int) -> Iterator[Bucket]:
    if len(found) <= points:
        yield from (_joined([one]) for one in found)
        return
    width_s = (high_s - low_s) / points or 1.0
    group: list[_Interval] = []
    column = 0
    for one in found:
        its = min(points - 1, int((one.at_s - low_s) / width_s))
        if its != column and group:
            yield _joined(group)
            group = []
        column = its
        group.append(one)
    if group:
        yield _joined(group)


def _joined(group: list[_Interval]) -> Bucket:
    """Joins intervals into a bucket. Its median is over steps, not over intervals."""
    ordered = sorted(group, key=lambda one: one.each_s)
    total = sum(one.count for one in group)
    seen, median_s = 0, ordered[-1].each_s
    for one in ordered:
        seen += one.count
        if 2 * seen >= total:
            median_s = one.each_s
            break
    return Bucket(
        at_s=group[0].at_s,
        first_step=group[0].first_step,
        count=total,
        low_s=ordered[0].each_s,
        median_s=median_s,
        high_s=ordered[-1].each_s,
    )


def _is_within(mark: Mark, low_s: float, high_s: float) -> bool:
    return mark.at_s <= high_s and (mark.until_s if mark.until_s is not None else mark.at_s) >= low_s

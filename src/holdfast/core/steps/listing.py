"""Lists all slowdowns of a run: those found afterwards in the whole log, and those reported while it ran.

Pure.
"""

from statistics import median

from holdfast.core.steps import wording
from holdfast.core.steps.curve import Stretch
from holdfast.core.steps.phases import Grown
from holdfast.core.steps.stretches import Slow
from holdfast.model.steps import Slowdown

SAID_SHARE = 0.6  # a reported slowdown covers another one if it has at least this part of its size
DATA_SHARE = 0.6  # part of the added time from which waiting for data explains the slowdown


def of_stretch(
    slow: Slow, points: list[Stretch], ranks: int | None, *, goes_on: bool, in_seconds: bool
) -> Slowdown:
    """Returns a slowdown made of a slow range of the curve.

    `points`: of the curve. `in_seconds` False: only throughput is known, so there is no cost.
    """
    first, last = points[slow.first], points[slow.last]
    lost_s = max(slow.after_s - slow.before_s, 0.0) * (last.last - first.first + 1)
    cost = lost_s * (ranks or 1) / 3600 if in_seconds else None
    what = _what(points, slow)
    last_step = None if goes_on else last.last
    english, chinese = wording.explain(
        slow.kind,
        what,
        first.first,
        last_step,
        slow.before_s,
        slow.after_s,
        cost,
        ranks_known=ranks is not None,
    )
    return Slowdown(
        first_step=first.first,
        last_step=last_step,
        before_s=slow.before_s,
        after_s=slow.after_s,
        ratio=slow.after_s / slow.before_s,
        kind=slow.kind,
        cost_gpu_hours=cost,
        explanation=english,
        explanation_zh=chinese,
        what=what,
        run=first.run,
        since_s=first.at_s,
    )


def of_pauses(grown: Grown, ranks: int | None) -> Slowdown:
    """Returns a slowdown in which only the pauses of one kind take longer."""
    cost = (grown.after_s - grown.before_s) * grown.count * (ranks or 1) / 3600
    english, chinese = wording.explain_pause(
        grown.kind, grown.first, grown.before_s, grown.after_s, cost, ranks_known=ranks is not None
    )
    return Slowdown(
        first_step=grown.first,
        last_step=None,
        before_s=grown.before_s,
        after_s=grown.after_s,
        ratio=grown.after_s / grown.before_s,
        kind="lasting",
        cost_gpu_hours=cost,
        explanation=english,
        explanation_zh=chinese,
        what=grown.kind,
        run=grown.run,
    )


def _what(points: list[Stretch], slow: Slow) -> str:
    """Returns "data" if waiting for data explains the slowdown, else "everyone"."""
    inside = [point.data_s for point in points[slow.first : slow.last + 1] if point.data_s is not None]
    outside = [
        point.data_s
        for place, point in enumerate(points)
        if point.data_s is not None and not slow.first <= place <= slow.last
    ]
    if not inside or not outside:
        return "everyone"
    grown = median(inside) - median(outside)
    return "data" if grown > DATA_SHARE * (slow.after_s - slow.before_s) else "everyone"


def is_said(one: Slowdown, other: Slowdown) -> bool:
    """Returns whether both slowdowns cover the same steps, and `other` is large enough to explain
    this one.
    """
    if one.run != other.run or other.ratio - 1 < SAID_SHARE * (one.ratio - 1):
        return False
    far = float("inf")
    one_last = one.last_step if one.last_step is not None else far
    other_last = other.last_step if other.last_step is not None else far
    return (one.first_step or 0) <= other_last and (other.first_step or 0) <= one_last


def is_same(one: Slowdown, other: Slowdown) -> bool:
    """Returns whether two slowdowns share most of their steps."""
    if (
        one.run != other.run
        or other.found_step is None
        or (one.last_step is None) != (other.last_step is None)
    ):
        return False
    one_first, other_first = one.first_step or 0, other.first_step or 0
    last = max(one_first, other_first, other.found_step)
    one_last = one.last_step if one.last_step is not None else last
    other_last = other.last_step if other.last_step is not None else last
    common = min(one_last, other_last) - max(one_first, other_first)
    return 2 * common > max(one_last, other_last) - min(one_first, other_first)

"""Finds the first step at which two runs differ by more than the noise between repeats. Pure.

Without repeats, or if repeats are equal in all printed digits, any difference counts. Otherwise a difference
must be larger than NOISE_FACTOR times the largest one between repeats up to that step, and must persist: the
noise of a training grows with its steps, and a single step may be an outlier.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import median

from msgspec.structs import replace

from holdfast.core.compare.series import Cell, Column, RunValues, is_equal, middle, shown
from holdfast.model.runs.comparison import MEASURES, Measure, Parting, Speed

NOISE_FACTOR = 2.0
LASTS, OF_NEXT = 4, 5  # a difference must persist in LASTS of the OF_NEXT following steps
TIME_STEPS_MIN = 8  # step times that a comparison of speeds needs
TIME_RATIO = 1.05
TIME_WINDOW = 15


def partings(first: RunValues, other: RunValues, repeats: Sequence[RunValues]) -> tuple[Parting, ...]:
    """Returns, for each measure, the first step at which two runs differ; earliest step first, then in order
    of MEASURES.

    If ranks log separately, the earliest step of any rank counts; `ranks` names those that differ there.
    """
    ranks = _of_ranks(first, other, repeats)
    found = []
    for measure in MEASURES:
        columns = [one.columns[measure] for one in repeats]
        whole = parting(measure, first.columns[measure], other.columns[measure], columns)
        own = [(rank, one) for rank, one in ranks if one.measure == measure]
        step = min((one.step for _, one in own), default=None)
        named = tuple(rank for rank, one in own if one.step == step)
        if step is not None and (whole is None or step <= whole.step):
            whole = next(one for _, one in own if one.step == step)
            found.append(replace(whole, ranks=named))
        elif whole is not None:
            found.append(whole)
    return tuple(sorted(found, key=lambda one: (one.step, MEASURES.index(one.measure))))


def parting(measure: Measure, first: Column, other: Column, repeats: Sequence[Column]) -> Parting | None:
    """Returns the first step at which two runs differ in one measure; None if they do not."""
    steps = sorted(first.cells.keys() & other.cells.keys())
    noise = _Noise(first, repeats)
    beyond = [_is_beyond(first.cells[step], other.cells[step], noise.at(step)) for step in steps]
    for place, step in enumerate(steps):
        if not beyond[place]:
            continue
        limit = noise.at(step)
        near = beyond[place : place + OF_NEXT]
        if limit and sum(near) < min(LASTS, len(near)):
            continue
        return Parting(
            measure=measure,
            step=step,
            first=shown(first.cells[step]),
            other=shown(other.cells[step]),
            noise=limit,
        )
    return None


def speeds(first: Mapping[int, float], other: Mapping[int, float]) -> Speed | None:
    """Compares the step times of two runs, without the first tenth of the steps; None if too few
    are known.
    """
    steps = sorted(first.keys() & other.keys())
    steps = steps[max(1, len(steps) // 10) :]
    if len(steps) < TIME_STEPS_MIN:
        return None
    one, two = ([times[step] for step in steps] for times in (first, other))
    ours, theirs = median(one), median(two)
    if ours <= 0 or theirs <= 0:
        return None
    ratio = theirs / ours
    spread = max(_spread(one), _spread(two))
    is_other = abs(ratio - 1) > max(TIME_RATIO - 1, 3 * spread / len(steps) ** 0.5)
    return Speed(
        first_s=ours, other_s=theirs, ratio=ratio, since=_since(steps, one, two) if is_other else None
    )


def _of_ranks(first: RunValues, other: RunValues, repeats: Sequence[RunValues]) -> list[tuple[int, Parting]]:
    """Returns, for the log of each rank, the first step at which each measure differs."""
    found = []
    for rank in sorted(first.of_ranks.keys() & other.of_ranks.keys()):
        for measure in MEASURES:
            columns = [one.of_ranks[rank][measure] for one in repeats if rank in one.of_ranks]
            one = parting(measure, first.of_ranks[rank][measure], other.of_ranks[rank][measure], columns)
            if one is not None:
                found.append((rank, one))
    return found


class _Noise:
    """The largest difference of a measure between repeats, up to each step."""

    def __init__(self, first: Column, repeats: Sequence[Column]) -> None:
        self._steps: list[int] = []
        self._largest: list[float] = []
        largest = 0.0
        for step in sorted(first.cells):
            cells = [first.cells[step], *(one.cells[step] for one in repeats if step in one.cells)]
            if len(cells) < 2:
                continue
            numbers = [number for number in map(middle, cells) if isfinite(number)]
            is_text_apart = not numbers and any(not is_equal(cells[0], one) for one in cells[1:])
            spread = float("inf") if is_text_apart else max(numbers, default=0.0) - min(numbers, default=0.0)
            if spread > largest:
                largest = spread
                self._steps.append(step)
                self._largest.append(largest)

    def at(self, step: int) -> float:
        place = bisect_right(self._steps, step)
        return self._largest[place - 1] if place else 0.0


def _is_beyond(first: Cell, other: Cell, noise: float) -> bool:
    if is_equal(first, other):
        return False
    if not noise:
        return True
    apart = abs(middle(first) - middle(other))
    return apart > NOISE_FACTOR * noise or apart != apart and noise != float("inf")


def _spread(values: Sequence[float]) -> float:
    """Returns the robust standard deviation of values, relative to their median."""
    centre = median(values)
    return 1.4826 * median(abs(value - centre) for value in values) / centre if centre > 0 else 0.0


def _since(steps: Sequence[int], one: Sequence[float], two: Sequence[float]) -> int:
    """Returns the step at which the ratio of two runs' step times changes most."""
    ratios = [theirs / ours if ours > 0 else 1.0 for ours, theirs in zip(one, two, strict=True)]
    window = max(3, min(TIME_WINDOW, len(ratios) // 4))
    now = [median(ratios[max(0, at - window + 1) : at + 1]) for at in range(len(ratios))]
    last = median(ratios[-window:])
    middle_ratio = (1 + last) / 2
    is_slow = last > 1
    place = len(now)
    while place > 0 and (now[place - 1] > middle_ratio) == is_slow:
        place -= 1
    return steps[max(0, place - window // 2) if 0 < place < len(steps) else 0]

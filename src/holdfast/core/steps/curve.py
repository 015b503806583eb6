"""Computes a step-time curve of at most 2,000 points, each the median of a range of steps, for a log of any
length. Pure.
"""

from bisect import bisect_left
from statistics import median

from holdfast.model.steps import CurvePoint

POINTS_MAX = 2000
FIRST_MERGE = 8  # a median of two values is affected by one checkpoint; one of eight is not


class Stretch:
    """A range of consecutive steps with its median, minimum and maximum time; one point of the curve.

    Mutable, because a log may have millions of records.
    """

    __slots__ = (
        "at_s",
        "count",
        "data_s",
        "epoch",
        "first",
        "high_s",
        "last",
        "low_s",
        "median_s",
        "regime",
        "run",
    )

    def __init__(self, first: int, last: int, run: int, regime: int, at_s: float | None) -> None:
        self.first = first  # steps
        self.last = last
        self.count = 0  # records
        self.median_s = self.low_s = self.high_s = 0.0
        self.data_s: float | None = None
        self.epoch: int | None = None
        self.run = run
        self.regime = regime  # what was trained alike: one batch size, one sequence length
        self.at_s = at_s


class Curve:
    """Accumulates the step-time curve, from each record once.

    The width of a point doubles when there are too many. Two runs or regimes never share a point.
    """

    def __init__(self) -> None:
        self.width = 1  # records in a point
        self.points: list[Stretch] = []
        self._open: Stretch | None = None
        self._values: list[float] = []
        self._data: list[float] = []

    def add(
        self,
        step: int,
        steps: int,
        value_s: float,
        *,
        run: int,
        regime: int,
        epoch: int | None,
        at_s: float | None,
        data_s: float | None,
    ) -> None:
        """Adds one record: the mean `value_s` over the last `steps` steps up to `step`, in seconds.

        `regime`: number of the regime, in which all steps do the same work. `data_s`: time spent waiting for
        data.
        """
        here = self._open
        if here is None or here.run != run or here.regime != regime or here.epoch != epoch:
            self._close()
            here = self._open = Stretch(max(step - steps + 1, 0), step, run, regime, at_s)
            here.epoch = epoch
        here.last = step
        self._values.append(value_s)
        if data_s is not None:
            self._data.append(data_s)
        if len(self._values) >= self.width:
            self._close()

    def begin_regime(self, regime: int, step: int) -> None:
        """Marks that the training changed its workload some records ago: points before and after are not
        merged.
        """
        self._close()
        for point in reversed(self.points):
            if point.first < step - 1 and point.last < step:
                break
            point.regime = regime

    def _close(self) -> None:
        here, values = self._open, self._values
        if here is None:
            return
        values.sort()
        count = len(values)
        here.count = count
        here.median_s = median(values)
        here.low_s, here.high_s = values[count // 20], values[count - 1 - count // 20]
        here.data_s = median(self._data) if self._data else None
        self.points.append(here)
        self._open = None
        self._values = []
        self._data = []
        if len(self.points) > POINTS_MAX:
            self._merge(FIRST_MERGE if self.width == 1 else 2)

    def _merge(self, by: int) -> None:
        merged: list[Stretch] = []
        group: list[Stretch] = []
        for point in self.points:
            if group and (len(group) == by or not _alike(group[0], point)):
                merged.append(_join(group))
                group = []
            group.append(point)
        merged.append(_join(group))
        self.width *= by
        # Bounds the number of points in a log of thousands of short epochs or runs: joins across epochs.
        if len(merged) > 3 * POINTS_MAX // 4:
            merged = [_join(merged[place : place + 4]) for place in range(0, len(merged), 4)]
        self.points = merged

    def stretches(self) -> list[Stretch]:
        """Returns the points of the curve, including the unfinished one."""
        if self._open is None or not self._values:
            return self.points
        here, values = self._open, sorted(self._values)
        point = Stretch(here.first, here.last, here.run, here.regime, here.at_s)
        point.epoch, point.count, point.median_s = here.epoch, len(values), median(values)
        point.low_s, point.high_s = values[0], values[-1]
        point.data_s = median(self._data) if self._data else None
        return [*self.points, point]

    def shown(self) -> tuple[CurvePoint, ...]:
        """Returns the points of the curve for display, the unfinished one included."""
        return tuple(
            CurvePoint(
                first_step=point.first,
                last_step=point.last,
                median_s=point.median_s,
                low_s=point.low_s,
                high_s=point.high_s,
                run=point.run,
                at_s=point.at_s,
            )
            for point in self.stretches()
        )

    def median_s(self) -> float | None:
        """Returns the median of all records, exact for the first 2,000, then of weighted medians; None
        without records.
        """
        pairs = sorted((point.median_s, point.count) for point in self.stretches())
        if not pairs:
            return None
        ends, total = [], 0
        for _, count in pairs:
            total += count
            ends.append(total)
        if self.width == 1 and not total % 2:
            low, high = bisect_left(ends, total // 2), bisect_left(ends, total // 2 + 1)
            return (pairs[low][0] + pairs[high][0]) / 2
        return pairs[bisect_left(ends, (total + 1) // 2)][0]


def _alike(one: Stretch, other: Stretch) -> bool:
    return one.run == other.run and one.regime == other.regime and one.epoch == other.epoch


def _join(group: list[Stretch]) -> Stretch:
    """Returns one point for several; its median is the median of theirs, which a spike does not affect."""
    first, last = group[0], group[-1]
    if len(group) == 1:
        return first
    joined = Stretch(first.first, last.last, first.run, first.regime, first.at_s)
    joined.epoch = first.epoch
    joined.count = sum(point.count for point in group)
    joined.median_s = median(point.median_s for point in group)
    joined.low_s = min(point.low_s for point in group)
    joined.high_s = max(point.high_s for point in group)
    data = [point.data_s for point in group if point.data_s is not None]
    joined.data_s = median(data) if data else None
    return joined

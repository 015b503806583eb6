"""Stores the last step times of one rank in bounded columns. Pure."""

from array import array
from collections.abc import Iterator, Sequence
from math import isfinite, nan
from statistics import median

from holdfast.model.steps import RankTimes, StepRecord


class Columns:
    """The last steps of one rank: numbers, times, waits for data; bounded, eight bytes per value."""

    __slots__ = ("_kept", "count", "data_s", "steps", "times_s")

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self.count = 0
        self.steps = array("q")
        self.times_s = array("d")
        self.data_s = array("d")  # nan: not known, as in the others

    def add(self, record: StepRecord) -> None:
        if record.step is None or (self.steps and record.step == self.steps[-1]):
            return
        self.count += 1
        self.steps.append(record.step)
        self.times_s.append(nan if record.time_s is None else record.time_s)
        self.data_s.append(nan if record.data_s is None else record.data_s)
        if len(self.steps) >= 2 * self._kept:
            for column in (self.steps, self.times_s, self.data_s):
                del column[: self._kept]

    def records(self) -> Iterator[StepRecord]:
        run = 0
        for at, (step, time_s, data_s) in enumerate(zip(self.steps, self.times_s, self.data_s, strict=True)):
            run += at > 0 and step <= self.steps[at - 1]
            yield StepRecord(step, time_s=_known(time_s), data_s=_known(data_s), run=run, number=step)

    def last_run(self) -> tuple[Sequence[int], Sequence[float], Sequence[float]]:
        """Returns steps, times and waits for data since the step number last decreased."""
        steps = self.steps
        first = next((at for at in range(len(steps) - 1, 0, -1) if steps[at] <= steps[at - 1]), 0)
        return steps[first:], self.times_s[first:], self.data_s[first:]

    def times(self) -> RankTimes:
        taken = [value for value in self.times_s if isfinite(value)]
        data = [value for value in self.data_s if isfinite(value)]
        return RankTimes(
            count=self.count,
            median_s=median(taken) if taken else None,
            last_step=self.steps[-1] if self.steps else None,
            data_s=median(data) if data else None,
        )


def _known(value: float) -> float | None:
    return value if isfinite(value) else None

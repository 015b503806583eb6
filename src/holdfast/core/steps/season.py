"""Models periodic step times: alternating lengths, an optimizer that runs at every tenth step. Pure."""

from collections.abc import Sequence
from statistics import median

PERIODS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 25)  # in records
ROUNDS = 4  # periods that must have been observed
EXPLAINS = 0.5  # maximum remaining deviation between records, as a share, if a period explains them
PLAIN = 0.03  # robust spread below which no period is searched


class Season:
    """What step times are divided by, so that steps at different positions of a periodic pattern are comparable.

    `period`: its length in steps; 1: no periodic pattern.
    """

    def __init__(self) -> None:
        self.period = 1
        self._factors: list[float] = [1.0]

    def factor(self, at: int) -> float:
        """Returns the seasonal factor by which the step time of this record is divided."""
        return self._factors[at % self.period]

    def learn(self, values: Sequence[float], last: int) -> bool:
        """Learns the period from the newest values, the last of which is record number `last`.

        Returns whether it changed.
        """
        before = self.period
        plain = _spread(values)
        best, left = 1, plain
        if (plain > PLAIN or _outer(values) > 4 * PLAIN) and quantum(values) < PLAIN:
            whole = _deviation(values)
            for period in PERIODS:
                if len(values) < ROUNDS * period:
                    break
                factors = _factors(values, period)
                off = _deviation([value / factors[place % period] for place, value in enumerate(values)])
                # A multiple of a period explains the same: a longer period must be better by a tenth.
                if off < EXPLAINS * whole and (best == 1 or off < 0.9 * left):
                    best, left = period, off
        if best == 1:
            changed = before != 1
            self.period, self._factors = 1, [1.0]
            return changed
        factors = _factors(values, best)
        start = last - len(values) + 1
        self.period = best
        self._factors = [factors[(phase - start) % best] for phase in range(best)]
        return True


def quantum(values: Sequence[float]) -> float:
    """Returns the distance between neighbouring values, as a share, if there are few distinct ones; else 0.

    Examples are times with two decimals, or time stamps in whole seconds.
    """
    few = min(8, len(values) // 2)
    if len(set(values[::8])) >= few:
        return 0.0
    ordered = sorted(values)
    low = ordered[: max(int(len(ordered) * 0.9), 1)]
    distinct = sorted(set(low))
    gaps = [after - before for before, after in zip(distinct, distinct[1:], strict=False)]
    if not gaps or len(distinct) >= few:
        return 0.0
    return min(gaps) / low[len(low) // 2]


def _factors(values: Sequence[float], period: int) -> list[float]:
    """Returns the typical value at each position of the period, divided by the mean of the lowest 70 %."""
    lowest = sorted(values)[: max(int(len(values) * 0.7), 1)]
    level = sum(lowest) / len(lowest)
    return [median(values[phase::period]) / level for phase in range(period)]


def _deviation(values: Sequence[float]) -> float:
    """Returns the mean distance from the median, as a share, with each value clipped."""
    middle = median(values)
    return sum(min(abs(value / middle - 1), 0.5) for value in values) / len(values)


def _spread(values: Sequence[float]) -> float:
    ordered = sorted(values)
    count = len(ordered)
    return (ordered[(3 * count) // 4] - ordered[count // 4]) / 1.349 / ordered[count // 2]


def _outer(values: Sequence[float]) -> float:
    """Returns how far the 95th percentile lies above the median: a slow step among ten shows there."""
    ordered = sorted(values)
    return ordered[(19 * len(ordered)) // 20] / ordered[len(ordered) // 2] - 1

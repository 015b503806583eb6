"""Models periodic steps: alternating lengths, an optimizer that runs at every tenth step. Pure."""

from collections.abc import Sequence
from statistics import median

PERIODS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 25)  # records
ROUNDS = 4  # of a period that must have been seen
EXPLAINS = 0.5  # what is left of the differences between records, when a period explains them
PLAIN = 0.03  # robust spread of records that take no turns worth the looking


class Season:
    """Divisors that make all records comparable. `period` 1: no pattern."""

    def __init__(self) -> None:
        self.period = 1
        self._factors: list[float] = [1.0]

    def factor(self, at: int) -> float:
        return self._factors[at % self.period]

    def learn(self, values: Sequence[float], last: int) -> bool:
        """Learns from the newest values, the last of which is record number `last`. True: the divisors changed."""
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
                # A longer period explains what a part of it explains: it must do better by a tenth.
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
    """The distance between neighbouring values, as a share, if there are few: 0.07 and 0.08, or timestamps in whole
    seconds.
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
    """What each turn takes, to the mean of the lowest 70 %: a level told with or without turns is the same."""
    lowest = sorted(values)[: max(int(len(values) * 0.7), 1)]
    level = sum(lowest) / len(lowest)
    return [median(values[phase::period]) / level for phase in range(period)]


def _deviation(values: Sequence[float]) -> float:
    """Mean distance from the median, each clipped: what turns take part in it, however few they are."""
    middle = median(values)
    return sum(min(abs(value / middle - 1), 0.5) for value in values) / len(values)


def _spread(values: Sequence[float]) -> float:
    ordered = sorted(values)
    count = len(ordered)
    return (ordered[(3 * count) // 4] - ordered[count // 4]) / 1.349 / ordered[count // 2]


def _outer(values: Sequence[float]) -> float:
    """How far the highest tenth lies above the middle: a slow step among ten shows there."""
    ordered = sorted(values)
    return ordered[(19 * len(ordered)) // 20] / ordered[len(ordered) // 2] - 1

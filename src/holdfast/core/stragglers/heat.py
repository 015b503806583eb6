"""Stores times by rank and step in bounded memory, for a heat map: when it is full, neighbouring columns
merge. Pure.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from math import isnan, nan

from holdfast.model.steps import HeatMap

ROWS_MAX = 256  # ranks in a heat map
CELLS_MAX = 1 << 20


class Heat:
    """A heat map of times by rank and range of steps, with at most `columns_max` ranges."""

    def __init__(self, columns_max: int) -> None:
        self._columns_max = max(2, columns_max)
        self._ranks: list[int] = []
        self._steps: list[int] = []
        self._columns: list[Sequence[float]] = []
        self._open: list[Mapping[int, float]] = []
        self._stretch = 1
        self._open_step = 0

    def add(self, step: int, times: Mapping[int, float]) -> None:
        """Adds the times of one step, in seconds by rank."""
        if len(times) > len(self._ranks) or not set(self._ranks).issuperset(times):
            self._widen(times)
        if not self._open:
            self._open_step = step
        self._open.append(times)
        if len(self._open) < self._stretch:
            return
        self._columns.append(
            array("d", self._mean([[one.get(rank, nan) for rank in self._ranks] for one in self._open]))
        )
        self._steps.append(self._open_step)
        self._open = []
        if len(self._columns) >= min(self._columns_max, max(8, CELLS_MAX // max(1, len(self._ranks)))):
            self._halve()

    def map(self, always: Collection[int]) -> HeatMap | None:
        """Returns the heat map; None without data.

        `always`: ranks that are included even if there are too many rows.
        """
        if not self._columns:
            return None
        every = -(-len(self._ranks) // ROWS_MAX)
        rows = [at for at, rank in enumerate(self._ranks) if at % every == 0 or rank in always]
        values = tuple(
            tuple(None if isnan(column[at]) else round(column[at], 6) for column in self._columns)
            for at in rows
        )
        return HeatMap(ranks=tuple(self._ranks[at] for at in rows), steps=tuple(self._steps), values=values)

    def _mean(self, columns: Sequence[Sequence[float]]) -> list[float]:
        if len(columns) == 1:
            return list(columns[0])
        found = []
        for cells in zip(*columns, strict=True):
            known = [cell for cell in cells if not isnan(cell)]
            found.append(sum(known) / len(known) if known else nan)
        return found

    def _halve(self) -> None:
        pairs = range(0, len(self._columns) - 1, 2)
        self._columns = [array("d", self._mean(self._columns[at : at + 2])) for at in pairs]
        self._steps = [self._steps[at] for at in pairs]
        self._stretch *= 2

    def _widen(self, times: Mapping[int, float]) -> None:
        ranks = sorted({*self._ranks, *times})
        at = {rank: place for place, rank in enumerate(self._ranks)}
        self._columns = [
            array("d", [column[at[rank]] if rank in at else nan for rank in ranks])
            for column in self._columns
        ]
        self._ranks = ranks

"""Collects what one run logged at each step: losses, gradient norms, learning rates, data, step times. Pure.

A step that is repeated after a restart counts with its last value. Writers without a rank may print a step
several times: all of its values count, in any order.
"""

from collections.abc import Iterable
from math import isfinite
from statistics import median

from msgspec import Struct

from holdfast.core.plurals import counted
from holdfast.model.runs.comparison import MEASURES, Fact, Measure, RunSummary
from holdfast.model.steps import StepRecord

VALUES_MAX = 4_000_000  # maximum number of values kept per run, over all ranks and measures
RANKS_MAX = 4_096
Value = float | str


class Cell(Struct, gc=False):
    """The values of one measure at one step, sorted. `run`: the number of restarts before this step."""

    run: int
    values: tuple[Value, ...]


class Column:
    """One measure of one writer (a rank or the training), by step."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells: dict[int, Cell] = {}

    def add(self, step: int, run: int, value: Value) -> int:
        """Adds a value. Returns by how many the number of stored values grew."""
        cell = self.cells.get(step)
        if cell is None:
            self.cells[step] = Cell(run, (value,))
            return 1
        if run != cell.run:
            cell.run, cell.values = run, (value,)
        elif not any(same(value, other) for other in cell.values):
            cell.values = tuple(sorted((*cell.values, value), key=_order))
            return 1
        return 0


class RunValues:
    """All values in one run's logs. `name`: as the user named the run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.framework: str | None = None
        self.columns: dict[Measure, Column] = {measure: Column() for measure in MEASURES}
        self.of_ranks: dict[int, dict[Measure, Column]] = {}  # ranks that log their own values
        self.times_s: dict[int, float] = {}
        self.facts: tuple[Fact, ...] = ()
        self.notes: list[str] = []
        self.steps: dict[int, int] = {}  # the number of restarts before each
        self.repeated: set[int] = set()
        self._values = 0
        self._left_out = 0

    def take(self, records: Iterable[StepRecord]) -> None:
        """Adds the records of the log that counts for the whole training."""
        for record in records:
            if record.step is None:
                continue
            if self.steps.get(record.step, record.run) < record.run:
                self.repeated.add(record.step)
            self.steps[record.step] = record.run
            if record.time_s is not None and isfinite(record.time_s):
                self.times_s[record.step] = record.time_s
            self._add(self.columns, record)

    def take_rank(self, rank: int, records: Iterable[StepRecord]) -> None:
        """Adds the records of one rank's log."""
        if rank not in self.of_ranks and len(self.of_ranks) >= RANKS_MAX:
            return
        columns = self.of_ranks.setdefault(rank, {measure: Column() for measure in MEASURES})
        for record in records:
            if record.step is not None:
                self._add(columns, record)

    def summary(self) -> RunSummary:
        losses = self.columns["loss"].cells
        bad = (step for step, cell in losses.items() if not all(map(_is_finite, cell.values)))
        return RunSummary(
            name=self.name,
            steps=len(self.steps),
            first_step=min(self.steps, default=None),
            last_step=max(self.steps, default=None),
            repeated=len(self.repeated),
            losses=len(losses),
            nan_at=min(bad, default=None),
            ranks=tuple(sorted(self.of_ranks)),
            framework=self.framework,
        )

    def all_notes(self) -> list[str]:
        """Returns notes on this run's log that a comparison must mention."""
        found = list(self.notes)
        if not self.steps:
            found.append(f"{self.name}: no steps were found")
            return found
        if self.repeated:
            first, last = min(self.repeated), max(self.repeated)
            found.append(
                f"{self.name}: {counted(len(self.repeated), 'step')} between {first} and {last} "
                "were repeated after a restart; the last value of each counts"
            )
        losses = len(self.columns["loss"].cells)
        if losses < len(self.steps):
            missing = len(self.steps) - losses
            found.append(
                f"{self.name}: {missing} of {counted(len(self.steps), 'step')} have no loss in the log"
            )
        if self._left_out:
            found.append(f"{self.name}: {self._left_out} values were omitted: at most {VALUES_MAX} are kept")
        return found

    def _add(self, columns: dict[Measure, Column], record: StepRecord) -> None:
        assert record.step is not None
        values: tuple[tuple[Measure, Value | None], ...] = (
            ("loss", record.loss),
            ("grad_norm", record.grad_norm),
            ("learning_rate", record.learning_rate),
            ("data", record.data),
        )
        for measure, value in values:
            if value is None:
                continue
            if self._values >= VALUES_MAX:
                self._left_out += 1
                continue
            self._values += columns[measure].add(record.step, record.run, value)


def same(one: Value, other: Value) -> bool:
    """Returns whether two printed values are equal. NaN counts as equal to NaN."""
    return one == other or (one != one and other != other)


def is_equal(one: Cell, other: Cell) -> bool:
    """Returns whether two runs printed the same values at a step."""
    return len(one.values) == len(other.values) and all(map(same, one.values, other.values))


def middle(cell: Cell) -> float:
    """Returns the median of the values of a step; NaN for texts."""
    numbers = [value for value in cell.values if isinstance(value, float | int)]
    return median(numbers) if numbers else float("nan")


def shown(cell: Cell) -> Value:
    """Returns the value of a step for display: the only one, else the median, or the first of texts."""
    value = cell.values[0]
    return value if len(cell.values) == 1 or isinstance(value, str) else middle(cell)


def _is_finite(value: Value) -> bool:
    return isinstance(value, str) or isfinite(value)


def _order(value: Value) -> tuple[bool, str, float]:
    if isinstance(value, str):
        return True, value, 0.0
    return False, "", value if value == value else float("-inf")

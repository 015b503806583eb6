"""Defines data types of a comparison of runs: what each logged, where two begin to differ, and their start
conditions.
"""

from typing import Literal

from msgspec import Struct

Measure = Literal["loss", "grad_norm", "learning_rate", "data"]
MEASURES: tuple[Measure, ...] = (
    "data",
    "learning_rate",
    "loss",
    "grad_norm",
)  # in the order in which a training step computes them
FactKind = Literal["version", "environment", "setting", "seed", "data", "node", "command"]


# The probable kind of cause: the data of the step; the learning rate; one rank alone; the backward pass or
# the reduction of gradients; the start; one event after equal steps. "": the runs are equal.
Cause = Literal["", "data", "learning-rate", "ranks", "backward", "start", "event"]


class Fact(Struct, frozen=True, kw_only=True):
    """One start condition of a run, such as a setting or the version of a library.

    `is_recorded`: it is from the job's journal and not from the output.
    """

    kind: FactKind
    name: str
    value: str
    is_recorded: bool = False


class FactDifference(Struct, frozen=True, kw_only=True):
    """A start condition that differs between two runs.

    `first`, `other`: its values; None: that run does not have it.
    """

    kind: FactKind
    name: str
    first: str | None
    other: str | None


class Parting(Struct, frozen=True, kw_only=True):
    """The first step from which on a measure of two runs differs by more than the noise between repeats.

    `noise`: the largest difference between repeats up to that step; 0: any difference counts. `ranks`: the ranks
    whose logs differ at that step.
    """

    measure: Measure
    step: int
    first: float | str | None
    other: float | str | None
    noise: float = 0.0
    ranks: tuple[int, ...] = ()


class Speed(Struct, frozen=True, kw_only=True):
    """The median step times of two runs, in seconds. `ratio`: of the other run to the first.

    `since`: the step from which on the other run's speed differs; None if the speeds are alike.
    """

    first_s: float
    other_s: float
    ratio: float
    since: int | None


class RunSummary(Struct, frozen=True, kw_only=True):
    """A summary of what one run logged.

    `repeated`: number of steps repeated after a restart, whose last value counts.
    """

    name: str
    steps: int
    first_step: int | None = None
    last_step: int | None = None
    repeated: int = 0
    losses: int = 0
    nan_at: int | None = None
    ranks: tuple[int, ...] = ()
    framework: str | None = None


class Compared(Struct, frozen=True, kw_only=True):
    """The comparison of one run with the first one.

    `parted`: by measure, the earliest first; empty: no difference.

    `common`: number of steps that both logged with a comparable value. `means`: probable kind of cause of the
    earliest difference.
    """

    run: RunSummary
    common: int
    parted: tuple[Parting, ...] = ()
    ranks: tuple[int, ...] = ()  # which differ first
    speed: Speed | None = None
    facts: tuple[FactDifference, ...] = ()
    means: Cause = ""
    notes: tuple[str, ...] = ()

    @property
    def step(self) -> int | None:
        """Returns the first step at which the compared runs differ; None if they do not."""
        return self.parted[0].step if self.parted else None


class Comparison(Struct, frozen=True, kw_only=True):
    """A comparison of several runs with the first one.

    `repeats`: names of further runs with the first one's settings.
    """

    first: RunSummary
    others: tuple[Compared, ...]
    repeats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

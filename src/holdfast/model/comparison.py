"""Data types of a comparison of runs: what each run logged, where two runs part, and what they were started with."""

from typing import Literal

from msgspec import Struct

Measure = Literal["loss", "grad_norm", "learning_rate", "data"]
MEASURES: tuple[Measure, ...] = (
    "data",
    "learning_rate",
    "loss",
    "grad_norm",
)  # in the order in which a step makes them
FactKind = Literal["version", "environment", "setting", "seed", "data", "node", "command"]


# What the earliest difference points at: the data of the step; the learning rate; one rank alone; the backward pass or the
# reduction of gradients; the start; one event after equal steps. "": the runs are equal.
Cause = Literal["", "data", "learning-rate", "ranks", "backward", "start", "event"]


class Fact(Struct, frozen=True, kw_only=True):
    """One thing a run was started with, such as a setting or the version of a library. `is_recorded`: from a job's
    journal, not from its output.
    """

    kind: FactKind
    name: str
    value: str
    is_recorded: bool = False


class FactDifference(Struct, frozen=True, kw_only=True):
    """A fact of which two runs have different values. None: that run does not name it."""

    kind: FactKind
    name: str
    first: str | None
    other: str | None


class Parting(Struct, frozen=True, kw_only=True):
    """The first step from which on a value differs beyond the noise between repeats. `noise`: the largest difference
    between repeats up to that step; 0: any difference counts. `ranks`: whose own logs differ at that step.
    """

    measure: Measure
    step: int
    first: float | str | None
    other: float | str | None
    noise: float = 0.0
    ranks: tuple[int, ...] = ()


class Speed(Struct, frozen=True, kw_only=True):
    """Median step times in seconds. `ratio`: of the other run to the first. `since`: the step from which on the other
    run has another speed; None where the speeds are alike.
    """

    first_s: float
    other_s: float
    ratio: float
    since: int | None


class RunSummary(Struct, frozen=True, kw_only=True):
    """What one run logged. `repeated`: steps that a restart made again; the last value of each counts."""

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
    """One run beside the first one. `parted`: by measure, the earliest first; empty: equal in all common steps.

    `common`: number of steps that both logged with a comparable value. `means`: what the earliest difference points at.
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
        """The first step at which the compared runs differ."""
        return self.parted[0].step if self.parted else None


class Comparison(Struct, frozen=True, kw_only=True):
    """The first run, and each other run beside it. `repeats`: names of further runs like the first one."""

    first: RunSummary
    others: tuple[Compared, ...]
    repeats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

"""Determines the warm-up of a run, and the spread of the following records. Pure."""

from statistics import median

from holdfast.core.steps.phases import PhaseModel
from holdfast.model.steps import (
    MarkKind,
)

WARMUP_RATIO = 1.25  # first records above this multiple of the first records' median are warm-up


def settle(phases: PhaseModel, run: int, young: list[tuple[int, float, list[MarkKind]]]) -> None:
    """Counts the slow first records of a run as warm-up, once the median is known."""
    usual = median(value for _, value, _ in young)
    warm = True
    for step, value, marks in young:
        warm = warm and value > WARMUP_RATIO * usual and not marks
        if warm:
            phases.count(run, step, value, "warmup")
        else:
            phases.add(run, step, value, usual, marks)


def spread(values: list[float]) -> float:
    """Returns the robust spread of values, as a share of their median."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return (ordered[(3 * len(ordered)) // 4] - ordered[len(ordered) // 4]) / 1.349 / middle if middle else 0.0

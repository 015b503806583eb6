"""Decides which first records of a run are its warm-up, and how far the others spread. Pure."""

from statistics import median

from holdfast.core.steps.phases import PhaseModel
from holdfast.model.steps import (
    MarkKind,
)

WARMUP_RATIO = 1.25  # to the median of those: the first ones above are warm-up


def settle(phases: PhaseModel, run: int, young: list[tuple[int, float, list[MarkKind]]]) -> None:
    """Settles the warm-up once the median is known: the slow records at the start."""
    usual = median(value for _, value, _ in young)
    warm = True
    for step, value, marks in young:
        warm = warm and value > WARMUP_RATIO * usual and not marks
        if warm:
            phases.count(run, step, value, "warmup")
        else:
            phases.add(run, step, value, usual, marks)


def spread(values: list[float]) -> float:
    """Robust spread, as a share of the median."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return (ordered[(3 * len(ordered)) // 4] - ordered[len(ordered) // 4]) / 1.349 / middle if middle else 0.0

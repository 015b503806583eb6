"""Compares runs of one training with the first of them: at which step and rank values begin to differ, and
why.

Pure.
"""

from collections.abc import Sequence

from holdfast.core.compare.facts import differences
from holdfast.core.compare.parting import partings, speeds
from holdfast.core.compare.series import RunValues
from holdfast.core.plurals import counted
from holdfast.model.runs.comparison import MEASURES, Cause, Compared, Comparison, Parting

NAMES = {"data": "data", "learning_rate": "learning rate", "loss": "loss", "grad_norm": "gradient norm"}


def compare(runs: Sequence[RunValues], repeats: Sequence[RunValues] = ()) -> Comparison:
    """Compares each run with the first one.

    `repeats`: further runs with the first one's settings, which show the noise.
    """
    first = runs[0]
    notes = [note for one in (first, *repeats) for note in one.all_notes()]
    if repeats:
        notes += _noise(first, repeats)
    return Comparison(
        first=first.summary(),
        others=tuple(_compared(first, other, repeats) for other in runs[1:]),
        repeats=tuple(one.name for one in repeats),
        notes=tuple(notes),
    )


def _compared(first: RunValues, other: RunValues, repeats: Sequence[RunValues]) -> Compared:
    common = {
        step
        for measure in MEASURES
        for step in first.columns[measure].cells.keys() & other.columns[measure].cells.keys()
    }
    parted = partings(first, other, repeats)
    return Compared(
        run=other.summary(),
        common=len(common),
        parted=parted,
        ranks=parted[0].ranks if parted else (),
        speed=speeds(first.times_s, other.times_s),
        facts=differences(first.facts, other.facts),
        means=_means(parted, first, other),
        notes=tuple([*other.all_notes(), *_about(first, other, len(common))]),
    )


def _about(first: RunValues, other: RunValues, common: int) -> list[str]:
    """Returns notes on what limits the comparison of two runs."""
    one, two = first.summary(), other.summary()
    if not one.steps or not two.steps:
        return []
    found = []
    if not common:
        return [
            f"{one.name} and {two.name} have no step with the same kind of value: steps {one.first_step} to "
            f"{one.last_step} and {two.first_step} to {two.last_step}"
        ]
    if one.last_step != two.last_step:
        shorter, longer = (one, two) if (one.last_step or 0) < (two.last_step or 0) else (two, one)
        found.append(
            f"{shorter.name} ends at step {shorter.last_step}, {longer.name} at step {longer.last_step}: "
            f"the {counted(common, 'step')} of both are compared"
        )
    elif one.first_step != two.first_step:
        found.append(f"the runs begin at steps {one.first_step} and {two.first_step}")
    found += [
        f"the loss of {run.name} is not a finite number from step {run.nan_at} on"
        for run in (one, two)
        if run.nan_at is not None
    ]
    if len(one.ranks) > 1 and len(two.ranks) > 1 and one.ranks != two.ranks:
        found.append(f"{one.name} has logs of {len(one.ranks)} ranks, {two.name} of {len(two.ranks)}")
    return found


def _noise(first: RunValues, repeats: Sequence[RunValues]) -> list[str]:
    """Returns a note on whether the repeats are equal, or from which step on they differ."""
    apart = [found for one in repeats for found in partings(first, one, ())]
    if not apart:
        return ["the repeats are equal in all printed digits: any difference counts"]
    earliest = min(apart, key=lambda one: one.step)
    return [
        f"repeats differ in {NAMES[earliest.measure]} from step {earliest.step} on: only larger differences count"
    ]


def _means(parted: Sequence[Parting], first: RunValues, other: RunValues) -> Cause:
    """Returns the probable kind of cause of the earliest difference."""
    if not parted:
        return ""
    step, ranks = parted[0].step, parted[0].ranks
    measures = {one.measure for one in parted if one.step == step}
    if "data" in measures:
        return "data"
    if "learning_rate" in measures:
        return "learning-rate"
    if ranks and len(ranks) < len(first.of_ranks):
        return "ranks"
    if "loss" not in measures and step in first.columns["loss"].cells and step in other.columns["loss"].cells:
        return "backward"
    is_first = step == min(first.steps.keys() & other.steps.keys(), default=None)
    return "start" if is_first else "event"

"""Computes the time that incidents and jobs lost, by cause. Pure."""

from collections.abc import Iterable

from holdfast.core.job.spent import REPEATED, Part
from holdfast.core.job.story import IncidentStory, Summary
from holdfast.model.documents.parts import Cost

DIGITS = 3


def cost_of(incident: IncidentStory, devices: int) -> Cost | None:
    """Returns what one incident cost, in seconds and device-hours; None if its duration is unknown. `lost_s` is the
    sum of `by_cause`.

    `devices`: number of devices of the job.
    """
    if not incident.spent:
        return None
    return _cost(incident.spent, devices, incident.steps_lost)


def cost_of_job(summary: Summary) -> Cost | None:
    """Returns the cost of all incidents of a job; None if it had no incidents."""
    parts = [part for one in summary.incidents for part in one.spent]
    if not parts:
        return None
    repeated = [one.steps_lost for one in summary.incidents if one.steps_lost is not None]
    return _cost(parts, summary.devices, sum(repeated) if repeated else None)


def timeline(incident: IncidentStory) -> tuple[tuple[str, float], ...]:
    """Returns the phases of an incident's recovery in order, as (name, seconds), until the first step after it."""
    return tuple((part.what, round(part.seconds, DIGITS)) for part in incident.spent if part.what != REPEATED)


def goodput(summary: Summary) -> float | None:
    """Returns the share of the time since submission that was spent on steps that count; None before the
    first step.

    Steps that had to be repeated do not count.
    """
    if summary.submitted_at_s is None or summary.last_at_s is None:
        return None
    whole_s = summary.last_at_s - summary.submitted_at_s
    if whole_s <= 0 or all(one.first_step is None for one in summary.attempts):
        return None
    return round(min(1.0, max(0.0, summary.spent.useful_s / whole_s)), 4)


def _cost(parts: Iterable[Part], devices: int, repeated: int | None) -> Cost:
    by_cause: dict[str, float] = {}
    for part in parts:
        by_cause[part.what] = by_cause.get(part.what, 0.0) + part.seconds
    rounded = {what: round(seconds, DIGITS) for what, seconds in by_cause.items()}
    return Cost(
        lost_s=round(sum(rounded.values()), DIGITS),
        devices=devices,
        steps_repeated=repeated,
        by_cause=rounded,
    )

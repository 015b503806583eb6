"""Formats what another policy would have decided: the differences of one job, the totals of many.

Prints nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

import msgspec

from holdfast.core.plurals import counted
from holdfast.core.replay.score import Card, Difference, Score
from holdfast.settings.times import length
from holdfast.views.fleet.costs import gpu_hours
from holdfast.views.lines import Line

DIFFERENCES_SHOWN, JOBS_SHOWN, NOTES_SHOWN = 40, 20, 10


def of_job(score: Score, named: str, zone: tzinfo | None = None) -> list[Line]:
    lines = [Line(f"job {score.job} under {named}: {_agreement(score.decisions, score.same)}", "strong")]
    if not score.differences:
        lines.append(Line("It would have made the same decisions, with the same durations."))
    for one in score.differences[:DIFFERENCES_SHOWN]:
        lines += _difference(one, zone)
    hidden = len(score.differences) - DIFFERENCES_SHOWN + score.left_out
    if hidden > 0:
        lines.append(Line(f"  and {hidden} more", "quiet"))
    if score.ends_at_s is not None:
        text = f"The job would have ended {length(round(score.after_end_s))} before the end of this journal."
        lines.append(Line(text, "error"))
    lines += _sum(score.saved_s, score.saved_gpu_hours, score.unknown)
    return [*lines, *(Line(f"note: {note}", "quiet") for note in score.notes[:NOTES_SHOWN])]


def of_fleet(card: Card, scores: Sequence[Score], named: str, unread: Sequence[str]) -> list[Line]:
    head = f"{counted(card.jobs, 'job')} under {named}: {_agreement(card.decisions, card.same)}"
    lines = [Line(head, "strong")]
    for count, words in (
        (card.would_end, "would have ended earlier"),
        (card.would_go_on, "would have continued where they failed"),
    ):
        if count:
            lines.append(Line(f"  {counted(count, 'job')} {words}"))
    if card.false_hangs:
        lines.append(
            Line(f"  {counted(card.false_hangs, 'gap')} between steps would have been judged a hang")
        )
    lines += _sum(card.saved_s, card.saved_gpu_hours, card.unknown)
    other = [one for one in scores if one.differences]
    if other:
        lines += [Line(), Line("Jobs with other decisions", "strong")]
    for one in sorted(other, key=lambda one: (-abs(one.saved_gpu_hours), one.job))[:JOBS_SHOWN]:
        lines.append(
            Line(f"  {one.job}: {counted(len(one.differences), 'difference')}, {_saved(one.saved_gpu_hours)}")
        )
    return [*lines, *(Line(f"note: {text}", "quiet") for text in unread[:NOTES_SHOWN])]


def document(card: Card, scores: Sequence[Score], named: str, unread: Sequence[str]) -> dict[str, Any]:
    """Returns the JSON document of `holdfast replay` (docs/costs.md).

    `unread`: notes about jobs that could not be read.
    """
    built: dict[str, Any] = msgspec.to_builtins(card)
    built |= {"policy": named, "by_job": msgspec.to_builtins(scores), "notes": list(unread)}
    return built


def _agreement(decisions: int, same: int) -> str:
    if not decisions:
        return "no decision was made"
    return f"{same} of {counted(decisions, 'decision')} the same"


def _difference(one: Difference, zone: tzinfo | None) -> list[Line]:
    at = datetime.fromtimestamp(one.at_s, zone).strftime("%Y-%m-%d %H:%M:%S")
    what = f"incident {one.incident}" if one.incident else one.what
    effect = "" if one.saved_s is None else f"; {_seconds(one.saved_s)}"
    lines = [Line(f"  {at}  {what}: was {one.was}, would be {one.would_be}{effect}")]
    if one.why:
        lines.append(Line(f"    {one.why}", "quiet"))
    return lines


def _sum(saved_s: Mapping[str, float], hours: float, unknown: int) -> list[Line]:
    lines = []
    if saved_s:
        by_class = ", ".join(f"{name} {seconds:+.1f} s" for name, seconds in saved_s.items())
        lines.append(Line(f"Together: {_saved(hours)} (saved: {by_class})"))
    if unknown:
        lines.append(
            Line(f"Of {counted(unknown, 'difference')} the effect cannot be computed from the journal.")
        )
    return lines


def _seconds(saved_s: Mapping[str, float]) -> str:
    seconds = sum(saved_s.values())
    return f"{length(round(abs(seconds)))} {'saved' if seconds >= 0 else 'more'}"


def _saved(hours: float) -> str:
    return f"{gpu_hours(abs(hours))} GPU-hours {'saved' if hours >= 0 else 'more'}"

"""Formats what jobs cost: a table by cause, the settings that cost most, the jobs of a fleet.

Prints nothing.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.costs.account import JobCost
from holdfast.core.costs.classes import LOST, MEANINGS
from holdfast.core.costs.fleet import Bill, Price
from holdfast.core.costs.settings import SettingCost
from holdfast.core.plurals import counted
from holdfast.settings.times import length
from holdfast.views.lines import Line

JOBS_SHOWN = 10
SETTINGS_SHOWN = 6
UNREAD_SHOWN = 5
NAME_CHARACTERS = 40


def report(
    bill: Bill,
    settings: Sequence[SettingCost],
    *,
    title: str,
    price: Price | None = None,
    jobs: Sequence[JobCost] = (),
    notes: Sequence[str] = (),
) -> list[Line]:
    """Returns the lines of the cost report.

    `jobs`: the jobs of a fleet, listed by what they lost, or the single job.
    """
    unit = "rank-hours" if jobs and all(one.has_no_gpu for one in jobs) else "GPU-hours"
    head = f"{title}: {gpu_hours(bill.gpu_hours)} {unit} in {length(round(bill.wall_s))}"
    if price is not None:
        head += f", {price.words(bill.gpu_hours)}"
    if bill.goodput is not None:
        head += f"; {bill.goodput:.2%} of it was progress"
    lines = [Line(head, "strong"), Line(), *_table(bill, price, unit)]
    lines += _settings(settings, price, unit)
    if len(jobs) > 1:
        lines += _jobs(jobs, price)
    lines += [Line(f"note: {note}", "quiet") for note in notes[:UNREAD_SHOWN]]
    if len(notes) > UNREAD_SHOWN:
        lines.append(
            Line(
                f"note: {counted(len(notes) - UNREAD_SHOWN, 'more note is', 'more notes are')} not shown (--json shows all)",
                "quiet",
            )
        )
    return lines


def document(
    bill: Bill, settings: Sequence[SettingCost], jobs: Sequence[JobCost], notes: Sequence[str]
) -> dict[str, Any]:
    """Returns the JSON document of `holdfast cost` (docs/costs.md)."""
    built: dict[str, Any] = msgspec.to_builtins(bill)
    built["settings"] = msgspec.to_builtins(settings)
    built["by_job"] = msgspec.to_builtins(jobs)
    built["notes"] = list(notes)
    return built


def _table(bill: Bill, price: Price | None, unit: str) -> list[Line]:
    if not bill.classes:
        return [Line("No costs have been recorded yet.")]
    money = f"{'cost':>14}" if price is not None else ""
    lines = [Line(f"{'':<16}{'time':>12}{unit:>12}{'share':>8}{money}", "quiet")]
    for one in bill.classes:
        paid = f"{price.words(one.gpu_hours):>14}" if price is not None else ""
        text = (
            f"{one.name:<16}{length_of(one.seconds):>12}{gpu_hours(one.gpu_hours):>12}{one.share:>8.2%}{paid}"
            f"  {MEANINGS[one.name]}"
        )
        lines.append(Line(text))
    return lines


def _settings(rows: Sequence[SettingCost], price: Price | None, unit: str) -> list[Line]:
    if not rows:
        return []
    lines = [Line(), Line("Settings that cost most", "strong")]
    for row in rows[:SETTINGS_SHOWN]:
        paid = f" ({price.words(row.gpu_hours)})" if price is not None else ""
        text = f"{row.setting} {row.value} cost {gpu_hours(row.gpu_hours)} {unit}{paid}"
        if row.incidents:
            text += f" in {counted(row.incidents, 'incident')}"
        if row.other_gpu_hours is not None and row.gain_gpu_hours > 0.0:
            text += f"; {row.other} would have cost {gpu_hours(row.other_gpu_hours)}"
        lines.append(Line(f"  {text}" + (f" ({row.how})" if row.how else "")))
    return lines


def _jobs(jobs: Sequence[JobCost], price: Price | None) -> list[Line]:
    lost = sorted(((_lost_hours(job), job) for job in jobs), key=lambda one: (-one[0], one[1].job))
    lines = [Line(), Line("Jobs that lost most", "strong")]
    for hours, job in lost[:JOBS_SHOWN]:
        paid = f", {price.words(hours)}" if price is not None else ""
        share = hours / job.gpu_hours if job.gpu_hours else 0.0
        lines.append(
            Line(
                f"  {job.job[:NAME_CHARACTERS]:<{NAME_CHARACTERS}} {gpu_hours(hours):>10} lost, {share:.1%}{paid}"
            )
        )
    if len(jobs) > JOBS_SHOWN:
        lines.append(Line(f"  and {counted(len(jobs) - JOBS_SHOWN, 'more job')} (--json shows all)", "quiet"))
    return lines


def _lost_hours(job: JobCost) -> float:
    return sum(job.hours_of(name) for name in LOST)


def gpu_hours(hours: float) -> str:
    """Formats a number of GPU-hours with three significant digits, or as a whole number from 100 on."""
    if hours >= 100.0:
        return f"{hours:,.0f}"
    return f"{hours:.3g}" if hours >= 0.001 or not hours else "<0.001"


def length_of(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60.0 else length(round(seconds))

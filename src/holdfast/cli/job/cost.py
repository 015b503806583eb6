"""Implements `holdfast cost`: reports what the time of one job or all jobs was spent on, in GPU-hours and
money.

Only reads.
"""

import os
import time
from typing import Annotated

from holdfast.archive.costs import FleetRead, read_cost, read_fleet
from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.languages import put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.core.costs.account import JobCost
from holdfast.core.costs.fleet import BadPrice, Price, bill, price_of
from holdfast.core.costs.settings import merged
from holdfast.core.plurals import counted
from holdfast.jobs.record import RecordUnreadable, named_job
from holdfast.journal.jobdir import StateDir
from holdfast.settings.read import SettingsRefused, state_root
from holdfast.settings.times import NotATime, seconds
from holdfast.views.fleet.costs import document, report
from holdfast.views.lines import for_terminal

FAILED = 1
SAID_MAX = 20

app = App()


@app.command()
def cost(
    job: Annotated[str | None, Argument("[JOB]", help="Name of the job; default: the newest.")] = None,
    fleet: Annotated[bool, Option("--fleet", help="All jobs of the state folder.")] = False,
    since: Annotated[
        str | None,
        Option(
            "--since", metavar="30d", help="Only the time since then (30d, 12h); without JOB: of all jobs."
        ),
    ] = None,
    price: Annotated[
        str | None,
        Option("--price", metavar="2.5/h", help="Price of one GPU for one hour, to show costs in money."),
    ] = None,
    json: Annotated[bool, Option("--json", help="One JSON document instead.")] = False,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """Divides a job's time by cause, and says which settings cost most."""
    asked = _price(price)
    since_s = _since(since)
    if job is not None and fleet:
        raise BadParameter("give a JOB or --fleet, not both", param_hint="--fleet")
    whole = fleet or (since is not None and job is None)
    found = _fleet(state_dir, since_s) if whole else _job(job, state_dir, since_s)
    costs = [one.cost for one in found.jobs]
    made = bill(costs, asked)
    rows = merged(row for one in found.jobs for row in one.settings)
    title = counted(len(costs), "job") if whole else f"job {costs[0].job}" if costs else "job"
    notes = [f"{one.job}: {note}" if whole else note for one in costs for note in one.notes]
    notes += [_counted_from(one) for one in costs if not whole]
    notes += found.unread
    if found.left_out:
        notes.append(f"{counted(found.left_out, 'job')} ended before that time")
    if json:
        put_json(document(made, rows, costs, notes))
        return
    for text in for_terminal(report(made, rows, title=title, price=asked, jobs=costs, notes=notes)):
        put_plain(text)


def _counted_from(cost: JobCost) -> str:
    if cost.has_no_gpu:
        return f"the boot check of {cost.job} named no GPU: rank-hours are counted, from its {cost.gpus_from}"
    return f"the number of GPUs of {cost.job} is taken from its {cost.gpus_from}"


def _job(job: str | None, state_dir: str | None, since_s: float | None) -> FleetRead:
    try:
        found = read_cost(named_job(job, state_dir), since_s)
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error
    if not found.cost.wall_s:
        when = "since then" if since_s is not None else "yet"
        say(
            f"job {found.cost.job} has no recorded time {when}: "
            f"{'; '.join(found.cost.notes) or 'nothing is recorded'}"
        )
        raise Exit(FAILED)
    return FleetRead(jobs=(found,))


def _fleet(state_dir: str | None, since_s: float | None) -> FleetRead:
    try:
        root = state_root(state_dir, os.environ)
    except SettingsRefused as error:
        raise BadParameter(str(error), param_hint="--state-dir") from error
    found = read_fleet(StateDir(root).jobs(), since_s)
    if not found.jobs and found.unread:
        for text in found.unread[:SAID_MAX]:
            say(text)
        raise Exit(FAILED)
    if not found.jobs:
        say(f"there is no job in {root}" + (" that ran since then" if since_s is not None else " yet"))
        raise Exit(FAILED)
    return found


def _price(text: str | None) -> Price | None:
    try:
        return price_of(text) if text is not None else None
    except BadPrice as error:
        raise BadParameter(str(error), param_hint="--price") from error


def _since(text: str | None) -> float | None:
    try:
        return time.time() - seconds(text) if text is not None else None
    except NotATime as error:
        raise BadParameter(str(error), param_hint="--since") from error

"""Implements `holdfast advise`: advises a checkpoint interval, spares and nodes to take out, from recorded
failures.

Only reads.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from holdfast.archive.advice import Given, published, record_of, worst_nodes
from holdfast.archive.costs import JobRead, read_cost, read_fleet
from holdfast.archive.fleet_figures import DEFAULT_RATE, rates
from holdfast.archive.placement import TopologyUnreadable, read_placement
from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.languages import put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.cli.line.plots import check_plot
from holdfast.core.reliability.advice import Advice, NodeFaults
from holdfast.core.reliability.advice import advise as advised
from holdfast.jobs.record import RecordUnreadable, named_job
from holdfast.journal.jobdir import StateDir
from holdfast.model.runs.placement import Placement
from holdfast.settings.read import SettingsRefused, fleet_root, state_root
from holdfast.settings.times import NotATime, seconds
from holdfast.views.fleet.advice import picture, report
from holdfast.views.fleet.picture import Picture
from holdfast.views.fleet.placement import lines as placement_lines
from holdfast.views.fleet.png import NotDrawn, draw
from holdfast.views.lines import for_terminal

FAILED = 1
NODES_MAX, GPUS_MAX = 1_000_000, 16_000_000
DAY_S = 86_400.0

app = App()


@app.command()
def advise(
    job: Annotated[str | None, Argument("[JOB]", help="Name of the job; default: the newest.")] = None,
    fleet: Annotated[
        bool, Option("--fleet", help="Use the failures of all jobs in the state folder.")
    ] = False,
    save: Annotated[
        str | None, Option("--save", metavar="30s", help="How long the training stops for one checkpoint.")
    ] = None,
    restart: Annotated[
        str | None,
        Option("--restart", metavar="5min", help="Time from a failure to the first step after it."),
    ] = None,
    interval: Annotated[
        str | None, Option("--interval", metavar="1h", help="Current time between checkpoints.")
    ] = None,
    nodes: Annotated[
        int | None, Option("--nodes", min=1, max=NODES_MAX, help="Number of nodes of the job.")
    ] = None,
    gpus: Annotated[
        int | None, Option("--gpus", min=1, max=GPUS_MAX, help="Number of GPUs of the job.")
    ] = None,
    rate: Annotated[
        str,
        Option("--rate", metavar="NAME", help="Published failure rate, used until failures are recorded."),
    ] = DEFAULT_RATE,
    topology: Annotated[
        str | None,
        Option(
            "--topology",
            metavar="FILE",
            help="Switch of each node: Slurm's topology.conf, or lines NODE SWITCH.",
        ),
    ] = None,
    plot: Annotated[
        str | None, Option("--plot", metavar="FILE", help="Also draw the curve, into FILE.html or FILE.png.")
    ] = None,
    json: Annotated[bool, Option("--json", help="Print one JSON document instead of text.")] = False,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """Advises a checkpoint interval and a number of spares, with their expected gain, its uncertainty and
    what is unknown.
    """
    if rate not in rates():
        raise BadParameter(f"{rate!r} is not one of {', '.join(rates())}", param_hint="--rate")
    check_plot(plot)
    given = Given(
        save_s=_length(save, "--save"),
        down_s=_length(restart, "--restart"),
        interval_s=_length(interval, "--interval"),
        nodes=nodes,
        gpus=gpus,
    )
    jobs, notes = _jobs(job, state_dir, fleet=fleet, free=nodes is not None)
    found = advised(record_of(jobs, given, _worst(state_dir)), published(rate))
    _print(found, jobs, notes, state_dir, topology, json=json)
    if plot is not None:
        drawn = picture(found, jobs[0].cost.job if jobs else "a job")
        if drawn is None:
            say("there is no curve to draw: give the time of one checkpoint, --save 30s")
            raise Exit(FAILED)
        _draw(Path(plot), drawn)


def _print(
    found: Advice,
    jobs: Sequence[JobRead],
    notes: Sequence[str],
    state_dir: str | None,
    topology: str | None,
    *,
    json: bool,
) -> None:
    """Prints the advice and the placement of the advised job. raises: Exit, BadParameter"""
    placement = _placement(jobs[0].cost.job, state_dir, topology) if jobs else None
    if json:
        put_json({**msgspec.to_builtins(found), "placement": placement})
    else:
        title = f"job {jobs[0].cost.job}" if jobs else "a job"
        placed = placement_lines(placement) if placement is not None else []
        for text in for_terminal([*report(found, title, notes), *placed]):
            put_plain(text)


def _placement(job: str, state_dir: str | None, topology: str | None) -> Placement:
    """raises: Exit, BadParameter"""
    try:
        named = named_job(job, state_dir)
        others = [one for one in StateDir(state_root(state_dir, os.environ)).jobs() if one.name != job]
        return read_placement(named, others, Path(topology) if topology is not None else None)
    except TopologyUnreadable as error:
        raise BadParameter(str(error), param_hint="--topology") from error
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error


def _draw(path: Path, drawn: Picture) -> None:
    try:
        draw(path, drawn)
    except NotDrawn as error:
        say(str(error))
        raise Exit(FAILED) from error


def _jobs(
    job: str | None, state_dir: str | None, *, fleet: bool, free: bool
) -> tuple[list[JobRead], tuple[str, ...]]:
    """Returns the job to advise first, then others to learn from, and notes.

    `free`: no job is needed, as a size was given.
    """
    try:
        named = named_job(job, state_dir)
        first = read_cost(named)
        if not fleet:
            return [first], first.cost.notes
        all_of = read_fleet(StateDir(state_root(state_dir, os.environ)).jobs(), steps=False)
    except RecordUnreadable as error:
        if free and job is None:
            return [], ("no job is recorded here: the advice uses published figures only",)
        say(str(error))
        raise Exit(FAILED) from error
    others = [one for one in all_of.jobs if one.cost.job != named.name]
    return [first, *others], (*first.cost.notes, *all_of.unread)


def _worst(state_dir: str | None) -> tuple[NodeFaults, ...]:
    try:
        return worst_nodes(fleet_root(None, state_dir, os.environ), time.time())
    except SettingsRefused as error:
        raise BadParameter(str(error), param_hint="--state-dir") from error


def _length(text: str | None, flag: str) -> float | None:
    if text is None:
        return None
    try:
        value_s = seconds(text)
    except NotATime as error:
        raise BadParameter(str(error), param_hint=flag) from error
    if not 0.0 < value_s <= 30 * DAY_S:
        raise BadParameter(f"{text!r} is not between 0 and 30 days", param_hint=flag)
    return value_s

"""Implements `holdfast replay`: repeats the decisions of one job or all jobs with other settings.

Only reads.
"""

import os
from typing import Annotated

from holdfast.archive.replay import Replayed, Wanted, replay_jobs, setting_of
from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.languages import put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.core.job.presets.preset import BadPreset
from holdfast.core.replay.deciding import UnknownSetting
from holdfast.core.replay.score import card
from holdfast.jobs.record import RecordUnreadable, named_job
from holdfast.journal.jobdir import JobDir, StateDir
from holdfast.settings.read import SettingsRefused, state_root
from holdfast.views.fleet.replay import document, of_fleet, of_job
from holdfast.views.lines import for_terminal

FAILED = 1
SAID_MAX = 20

app = App()


@app.command()
def replay(
    job: Annotated[str | None, Argument("[JOB]", help="Name of the job; default: the newest.")] = None,
    policy: Annotated[
        str | None,
        Option("--policy", metavar="NAME", help="Policy as for holdfast run, such as holdfast or aimaster."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="One setting, such as hang-timeout=10min."),
    ] = None,
    fleet: Annotated[
        bool, Option("--fleet", help="Replay all jobs of the state folder, and print totals.")
    ] = False,
    json: Annotated[bool, Option("--json", help="One JSON document instead.")] = False,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """Shows what other settings would have decided, when, and what they would have saved or cost."""
    if job is not None and fleet:
        raise BadParameter("give a JOB or --fleet, not both", param_hint="--fleet")
    found = _replayed(_jobs(job, state_dir, fleet=fleet), policy or "", set_ or [])
    if not found.scores:
        for text in found.unread[:SAID_MAX] or ("there is no job yet",):
            say(text)
        raise Exit(FAILED)
    named = " ".join(filter(None, (policy, *(set_ or [])))) or "the job's own policy"
    whole = card(found.scores)
    if json:
        put_json(document(whole, found.scores, named, found.unread))
        return
    lines = of_fleet(whole, found.scores, named, found.unread) if fleet else of_job(found.scores[0], named)
    for text in for_terminal(lines):
        put_plain(text)


def _jobs(job: str | None, state_dir: str | None, *, fleet: bool) -> list[JobDir]:
    try:
        return StateDir(state_root(state_dir, os.environ)).jobs() if fleet else [named_job(job, state_dir)]
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error
    except SettingsRefused as error:
        raise BadParameter(str(error), param_hint="--state-dir") from error


def _replayed(jobs: list[JobDir], policy: str, settings: list[str]) -> Replayed:
    try:
        wanted = Wanted(preset=policy, settings=dict(map(setting_of, settings)))
        return replay_jobs(jobs, wanted)
    except UnknownSetting as error:
        raise BadParameter(str(error), param_hint="--set") from error
    except BadPreset as error:
        raise BadParameter(str(error), param_hint="--policy") from error

"""Implements `holdfast why`: explains in one sentence what happened to a job, with the evidence.

Only reads.
"""

import os
import shutil
from typing import Annotated

from holdfast.archive.job import Reading, read
from holdfast.cli.line.flags import App, Argument, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.core.plurals import counted
from holdfast.jobs.record import RecordUnreadable, named_job
from holdfast.views.lines import for_terminal
from holdfast.views.why import report

FAILED = 1
WIDTH_MAX, WIDTH_MIN = 120, 40

app = App()


@app.command()
def why(
    job: Annotated[str | None, Argument("[JOB]", help="Name of the job; default: the newest.")] = None,
    incident: Annotated[
        int | None, Option("--incident", help="Number of the incident; default: the last.")
    ] = None,
    json: Annotated[
        bool, Option("--json", help="Print the JSON document of the incident, or of the job.")
    ] = False,
    lang: Lang = None,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """Explains in one sentence what happened to a job, with the evidence, the cost and the advice."""
    language = chosen_language(lang, os.environ, json=json)
    reading = _read(job, state_dir)
    chosen = reading.incident(incident)
    if chosen is None and incident is not None:
        say(_no_such(reading, incident))
        raise Exit(FAILED)
    document = reading.document()
    if json:
        put_json(chosen if chosen is not None else document)
        return
    width = max(WIDTH_MIN, min(WIDTH_MAX, shutil.get_terminal_size((WIDTH_MAX, 24)).columns))
    lines = report(document, chosen, language, width, asked=incident is not None)
    for text in for_terminal(lines):
        put_plain(text)


def _read(job: str | None, state_dir: str | None) -> Reading:
    try:
        return read(named_job(job, state_dir))
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error


def _no_such(reading: Reading, number: int) -> str:
    had = reading.summary.incidents
    if not had:
        return (
            f"job {reading.job.name} has had no incident: see its state with holdfast why {reading.job.name}"
        )
    return (
        f"job {reading.job.name} has no incident {number}: it has had {counted(len(had), 'incident')}, "
        f"numbered {had[0].number} to {had[-1].number}"
    )

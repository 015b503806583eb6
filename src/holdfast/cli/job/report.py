"""Implements `holdfast report`: saves the page of a job or an incident as one HTML file, for a ticket."""

import os
import time
from pathlib import Path
from typing import Annotated

from holdfast.archive.report import Gathered, gathered
from holdfast.cli.job.named import FAILED, Job, StateFolder
from holdfast.cli.line.flags import App, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language
from holdfast.cli.line.output import put, say
from holdfast.jobs.record import RecordUnreadable, named_job
from holdfast.views.languages import Language
from holdfast.views.page.shell import First, Shell, saved_html

app = App()


@app.command()
def report(
    job: Job = None,
    incident: Annotated[
        int | None, Option("--incident", help="Incident to show first; default: the last one.", min=1)
    ] = None,
    output: Annotated[
        str | None, Option("--output", "-o", metavar="FILE", help="Output file; default: standard output.")
    ] = None,
    lang: Lang = None,
    state_dir: StateFolder = None,
) -> None:
    """Writes the page of a job as one self-contained HTML file: holdfast report JOB > incident.html."""
    language = chosen_language(lang, os.environ, json=False)
    try:
        found = gathered(named_job(job, state_dir), incident, language)
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error
    if incident is not None and found.shown is None:
        say(f"job {found.reading.job.name} has no incident {incident}")
        raise Exit(FAILED)
    html = _html(found, language)
    if output is None:
        put(html)
        return
    try:
        _write(Path(output), html)
    except OSError as error:
        say(f"{output} cannot be written: {error.strerror or error}")
        raise Exit(FAILED) from error


def _html(found: Gathered, language: Language) -> str:
    name = found.reading.job.name
    sentence = found.shown.row.sentence if found.shown is not None else found.reading.row().sentence
    start = f"/jobs/{name}" + (f"/incidents/{found.shown.row.number}" if found.shown is not None else "")
    first = First(documents=found.documents, saved_at_s=time.time(), start=start)
    return saved_html(
        Shell(title=name, first=first, sentence=sentence.text, tone=sentence.tone, language=language)
    )


def _write(path: Path, text: str) -> None:
    """Writes the file atomically. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)

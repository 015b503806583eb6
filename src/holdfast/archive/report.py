"""Collects the documents of one job for a saved page, by API path. Masks secrets in all of them."""

import time
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any

import msgspec

from holdfast.archive.job import Reading, read
from holdfast.archive.output.read import read_files, read_output
from holdfast.archive.series.heat import METRICS, NoSamples, heat_map
from holdfast.archive.series.steps import StepTimes
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import JournalUnusable
from holdfast.model.documents.incidents import IncidentDocument
from holdfast.model.documents.jobs import HeatMap, LogPage
from holdfast.model.documents.output import OutputPage, OutputWanted
from holdfast.parsers.log_lines.secrets import masked
from holdfast.views.jobs.markdown import incident_markdown
from holdfast.views.jobs.series import marks_of, step_series
from holdfast.views.languages import Language

INCIDENTS_MAX = 20  # the newest incidents, with all details
POINTS, COLUMNS = 800, 240
LINES = 200  # of the output
LOG_LINES_MAX = 2_000


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of a saved page.

    `documents`: by API path, such as "/jobs/llama/incidents/3". `shown`: the requested incident, if any.
    """

    reading: Reading
    documents: dict[str, Any]
    shown: IncidentDocument | None


def gathered(
    job: JobDir,
    number: int | None,
    language: Language,
    clock: Callable[[], float] = time.time,
    zone: tzinfo | None = None,
) -> Gathered:
    """Collects the documents of a job. `number`: an incident to include, however old.

    Raises RecordUnreadable.
    """
    reading = read(job, clock, zone)
    path = f"/jobs/{job.name}"
    document = reading.document()
    documents: dict[str, Any] = {
        path: document,
        f"{path}/log": _log(reading),
        f"{path}/files": read_files(job),
    }
    numbers = [one.number for one in document.incidents][-INCIDENTS_MAX:]
    shown = reading.incident(number)
    for one in sorted({*numbers, *([shown.row.number] if shown is not None else [])}):
        incident = shown if shown is not None and shown.row.number == one else reading.incident(one)
        if incident is None:
            continue
        documents[f"{path}/incidents/{one}"] = incident
        documents[f"{path}/incidents/{one}/markdown"] = incident_markdown(incident, language)
    _add_series(documents, path, reading)
    documents[f"{path}/output"] = _output(job, shown)
    return Gathered(reading=reading, documents=_masked(documents), shown=shown)


def _add_series(documents: dict[str, Any], path: str, reading: Reading) -> None:
    marks = marks_of(reading.summary, reading.findings)
    try:
        steps = StepTimes().of(reading.job)
    except JournalUnusable:
        return
    documents[f"{path}/steps"] = step_series(steps, from_s=None, to_s=None, points=POINTS, marks=marks)
    if (heat := _heat(reading)) is not None:
        documents[f"{path}/heat"] = heat


def _heat(reading: Reading) -> HeatMap | None:
    """Returns the heat map of the first metric that has samples; None if none has."""
    for metric in METRICS:
        try:
            return heat_map(
                reading.job, reading.summary.attempt, metric, from_s=None, to_s=None, columns=COLUMNS
            )
        except NoSamples:
            continue
    return None


def _log(reading: Reading) -> LogPage:
    return LogPage(lines=tuple(reading.log[-LOG_LINES_MAX:]), next=reading.last_seq, live=False)


def _output(job: JobDir, shown: IncidentDocument | None) -> OutputPage:
    """Returns the output around the first error, or the end of the newest attempt's output if there is no
    error.
    """
    first = (
        next((one.place for one in shown.evidence if one.first_error), None) if shown is not None else None
    )
    if first is not None and first.offset is not None:
        wanted = OutputWanted(file=first.file, offset=first.offset, direction="around", limit=LINES)
        if (page := read_output(job, wanted)).lines:
            return page
    files = read_files(job)
    newest = max((one.attempt for one in files), default=None)
    few = {one.worker for one in files if one.attempt == newest}
    return read_output(job, OutputWanted(attempt=newest, workers=tuple(sorted(few)[:1]), limit=LINES))


def _masked(document: Any) -> Any:
    """Returns a copy of a document with secrets masked in every text."""
    if isinstance(document, str):
        return masked(document)
    if isinstance(document, Mapping):
        return {key: _masked(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_masked(value) for value in document]
    if isinstance(document, msgspec.Struct):
        return _masked(msgspec.to_builtins(document))
    return document

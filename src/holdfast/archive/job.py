"""Reads one job from its folder, and builds its documents: the list row, the job, each incident.

Read-only. Works beside a running job, after a crash of Holdfast, and with a damaged journal up to the damage.
"""

import hashlib
import os
import pwd
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import tzinfo

import msgspec
from msgspec.structs import replace

from holdfast.archive.heard import Heard
from holdfast.archive.incident_files import read_scene
from holdfast.archive.state import Truth, steps_now, true_state
from holdfast.core.job.story import IncidentStory, Summary
from holdfast.jobs.record import labels_of
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.incidents import IncidentDocument
from holdfast.model.documents.jobs import JobDocument, JobRow
from holdfast.observe.logs.step_file import read as read_steps
from holdfast.views.jobs.incident import incident_document
from holdfast.views.jobs.job import job_document
from holdfast.views.jobs.rows import job_row
from holdfast.views.jobs.seen import NO_SCENE, Seen
from holdfast.views.steps.rows import steps_of

WORKERS_MAX, FILES_MAX = 4_096, 64
SHOWN_FILES = (".log",)


class Reading:
    """A snapshot of a job: its journal and everything outside it, read once."""

    def __init__(
        self,
        heard: Heard,
        clock: Callable[[], float] = time.time,
        zone: tzinfo | None = None,
        *,
        job_id: str | None = None,
        source: str = "",
    ) -> None:
        """Creates a snapshot from an up-to-date journal; entries read later do not change it."""
        self.job = heard.job
        self.zone = zone
        self.policy, self.facts = heard.policy, heard.facts
        self.findings, self.log = tuple(heard.findings), tuple(heard.log)
        self.last_seq = heard.seq  # of the last entry read
        self.summary: Summary = heard.story.summary()
        self.truth: Truth = true_state(self.job, self.facts, self.summary, clock)
        self._notes = (*heard.notes, *((heard.damage,) if heard.damage else ()), *self.truth.notes)
        self.seen = self._look(job_id or self.job.name, source)

    def row(self) -> JobRow:
        return job_row(self.summary, self.seen, self.zone)

    def document(self) -> JobDocument:
        made = job_document(self.summary, self.seen, self.findings, self.zone)
        return replace(made, etag=etag_of(made))

    def story_of(self, number: int | None) -> IncidentStory | None:
        """Returns the incident with this number, or the last one for None; None if it does not exist."""
        if number is None:
            return self.summary.incidents[-1] if self.summary.incidents else None
        return next((one for one in self.summary.incidents if one.number == number), None)

    def incident(self, number: int | None, *, with_files: bool = True) -> IncidentDocument | None:
        """Returns the document of an incident; None if it does not exist.

        `with_files`: include its bundle and folders.
        """
        story = self.story_of(number)
        if story is None:
            return None
        scene = read_scene(self.job, story) if with_files else NO_SCENE
        made = incident_document(
            story, self.summary, self.seen, scene, findings=self.findings, zone=self.zone
        )
        return replace(made, etag=etag_of(made))

    def _look(self, job_id: str, source: str) -> Seen:
        job, summary, truth = self.job, self.summary, self.truth
        workers = sorted({*summary.nodes, *(rank.worker for rank in summary.ranks)})[:WORKERS_MAX] or [0]
        folders = {worker: job.worker(summary.attempt, worker) for worker in workers if summary.attempt}
        steps = {worker: one for worker, path in folders.items() if (one := read_steps(path)) is not None}
        files = {worker: found for worker, path in folders.items() if (found := _files(str(path)))}
        return Seen(
            id=job_id,
            name=job.name,
            state=truth.state,
            source=source,
            state_since_s=truth.since_s,
            seen_at_s=truth.seen_at_s,
            facts=self.facts,
            policy=self.policy,
            folder=str(job.path),
            user=owner(str(job.path)),
            supervisor=truth.supervisor,
            steps=steps_now(steps_of(job, summary), truth),
            worker_steps=steps,
            files=files,
            labels=labels_of(self.facts),
            living=truth.living,
            is_being_ended=truth.is_being_ended,
            warnings=self._notes,
        )


def read(
    job: JobDir,
    clock: Callable[[], float] = time.time,
    zone: tzinfo | None = None,
    *,
    job_id: str | None = None,
    source: str = "",
) -> Reading:
    """Reads a job and returns a snapshot. Raises RecordUnreadable."""
    heard = Heard(job)
    heard.read_on()
    return Reading(heard, clock, zone, job_id=job_id, source=source)


def read_job(job: JobDir, clock: Callable[[], float] = time.time, zone: tzinfo | None = None) -> JobDocument:
    """Returns the document of one job. Raises RecordUnreadable."""
    return read(job, clock, zone).document()


def read_incident(
    job: JobDir, number: int | None, clock: Callable[[], float] = time.time, zone: tzinfo | None = None
) -> IncidentDocument | None:
    """Returns the document of an incident, by default the last; None if there is none.

    Raises RecordUnreadable.
    """
    return read(job, clock, zone).incident(number)


def etag_of(document: JobDocument | IncidentDocument) -> str:
    """Returns the HTTP entity tag of a document. Equal documents have equal tags."""
    content = msgspec.json.encode(replace(document, etag=""))
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def _files(folder: str) -> dict[str, int]:
    """Returns the output files in a worker's folder with their sizes in bytes."""
    found: dict[str, int] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in ("stdout", "stderr") or entry.name.endswith(SHOWN_FILES):
                with suppress(OSError):
                    found[entry.name] = entry.stat().st_size
            if len(found) >= FILES_MAX:
                break
    return dict(sorted(found.items()))


def owner(folder: str) -> str:
    """Returns the name of the user that owns the folder; empty if unknown."""
    try:
        return pwd.getpwuid(os.stat(folder).st_uid).pw_name
    except (OSError, KeyError):
        return ""

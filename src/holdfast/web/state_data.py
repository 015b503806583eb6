"""Reads jobs from their folders, and nodes from the node book, as the documents that the server answers with."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.archive.output import cursors as output_cursors
from holdfast.archive.output.log_files import Selection, log_files
from holdfast.archive.output.pages import Start, TooManyFiles, page
from holdfast.archive.output.patterns import BadPattern, compiled
from holdfast.jobs.line import AnyLine, open_line
from holdfast.jobs.record import Record, RecordUnreadable, open_record
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.incidents import CheckRow, EvidenceRow, IncidentDocument
from holdfast.model.documents.jobs import (
    Counters,
    HeatMap,
    JobDocument,
    JobRow,
    JobsPage,
    LogLine,
    LogPage,
    StepSeries,
)
from holdfast.model.documents.live import Change
from holdfast.model.documents.nodes import DeviceRow, NodeDocument, NodesPage
from holdfast.model.documents.output import OutputFile, OutputPage
from holdfast.model.documents.parts import Sentence
from holdfast.model.signatures import Words
from holdfast.web.api.queries import HeatQuery, JobsQuery, LogQuery, NodesQuery, OutputQuery, StepsQuery
from holdfast.web.places import Places
from holdfast.web.refusals import bad_request, gone, not_there
from holdfast.web.settings import ServerSettings


class StateData:
    def __init__(self, settings: ServerSettings) -> None:
        self._places = Places(settings.state_dirs, settings.job)

    def place(self, job: str) -> JobDir:
        return self._places.place(job)

    def line(self, job: str) -> AnyLine:
        return open_line(self.place(job))

    def is_elsewhere(self, job: str) -> bool:
        return False

    def jobs(self, query: JobsQuery) -> JobsPage:
        found = self._places.all()
        rows = tuple(self.job(id_).row for id_, _ in found[: query.limit])
        return JobsPage(jobs=rows, total=len(found))

    def job(self, job: str) -> JobDocument:
        record = self._record(job)
        try:
            record.all_lines()
            summary = record.story.summary()
        finally:
            record.close()
        text = Words(en=summary.phase_words, zh=summary.phase_words)
        row = JobRow(
            id=job,
            name=summary.job,
            state="succeeded"
            if summary.outcome == "succeeded"
            else "failed"
            if summary.outcome
            else "training",
            sentence=Sentence(text=text),
            submitted_at_s=summary.submitted_at_s,
            step=summary.step,
        )
        counters = Counters(
            max_restarts=summary.max_restarts,
            restarts=summary.restarts,
            hardware_reschedules=summary.hardware_reschedules,
            replacements=summary.replacements,
        )
        return JobDocument(row=row, counters=counters, phase=summary.phase, phase_words=summary.phase_words)

    def incident(self, job: str, number: int) -> IncidentDocument:
        raise not_there(f"job {job} has no incident {number}")

    def evidence(self, job: str, number: int, evidence: str) -> EvidenceRow:
        raise not_there(f"incident {number} of job {job} has no evidence {evidence}")

    def bundle(self, job: str, number: int) -> Path:
        raise not_there(f"incident {number} of job {job} has no bundle")

    def markdown(self, job: str, number: int, lang: str) -> str:
        raise not_there(f"job {job} has no incident {number}")

    def log(self, job: str, query: LogQuery) -> LogPage:
        record = self._record(job)
        try:
            lines = record.all_lines()
            live = not record.story.ended
        except RecordUnreadable as error:
            raise gone(str(error)) from error
        finally:
            record.close()
        told = [
            LogLine(seq=number, at_s=one.at_s, kind=one.kind, text=one.text, attempt=one.attempt)
            for number, one in enumerate(lines, 1)
        ]
        chosen = [one for one in told if one.seq > query.after and (not query.kind or one.kind in query.kind)]
        chosen = chosen[: query.limit]
        return LogPage(lines=tuple(chosen), next=chosen[-1].seq if chosen else query.after, live=live)

    def steps(self, job: str, query: StepsQuery) -> StepSeries:
        self.place(job)
        return StepSeries(buckets=())

    def heat(self, job: str, query: HeatQuery) -> HeatMap:
        raise not_there(f"job {job} has no {query.metric} by rank")

    def files(self, job: str) -> tuple[OutputFile, ...]:
        return tuple(log.document() for log in log_files(self.place(job)))

    def output(self, job: str, query: OutputQuery) -> OutputPage:
        selection = Selection(
            file=query.file or None,
            attempt=query.attempt,
            workers=query.worker or None,
            ranks=query.rank or None,
        )
        logs = log_files(self.place(job), selection)
        if query.file and not logs:
            raise not_there(
                f"job {job} has no file {query.file} of its output", [one.file for one in self.files(job)]
            )
        start = Start(
            direction=query.direction,
            cursor=query.cursor,
            offset=query.line,
            at_s=query.at_s,
            limit=query.limit,
        )
        try:
            pattern = compiled(query.pattern) if query.pattern else None
            return page(logs, start, pattern=pattern)
        except (TooManyFiles, BadPattern, output_cursors.BadCursor) as error:
            raise bad_request(str(error)) from error

    def checks(self, job: str) -> tuple[CheckRow, ...]:
        self.place(job)
        return ()

    def nodes(self, query: NodesQuery) -> NodesPage:
        return NodesPage(nodes=())

    def node(self, node: str) -> NodeDocument:
        raise not_there(f"there is no node {node}")

    def device(self, serial: str) -> DeviceRow:
        raise not_there(f"there is no device {serial}")

    def changes(self) -> Sequence[Change]:
        return ()

    def health(self) -> tuple[int, tuple[str, ...]]:
        return len(self._places.all()), ()

    def close(self) -> None:
        pass

    def _record(self, job: str) -> Record:
        try:
            return open_record(self.place(job))
        except RecordUnreadable as error:
            raise gone(str(error)) from error

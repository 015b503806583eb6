"""Reads the server's data from state folders: lists from the index, documents from each job's folder."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from holdfast.archive.incident_files import bundle_of
from holdfast.archive.index.database import Database, IndexUnusable
from holdfast.archive.index.entry import BadCursor
from holdfast.archive.index.fleet import fleet_facts, nodes_of_running_jobs
from holdfast.archive.index.node_queries import nodes_page
from holdfast.archive.index.queries import JobsWanted, jobs_page, similar_incidents
from holdfast.archive.index.service import IndexService
from holdfast.archive.job import Reading
from holdfast.archive.output.read import read_files, read_output
from holdfast.archive.places import SEPARATOR, Place, Places
from holdfast.archive.remote import read_remote
from holdfast.archive.series.heat import NoSamples, heat_map
from holdfast.archive.series.steps import StepTimes
from holdfast.core.metrics.fleet_samples import FleetFacts
from holdfast.jobs.line import AnyLine, open_line
from holdfast.jobs.record import RecordUnreadable
from holdfast.journal.jobdir import JobDir, NoSuchJob, StateDir
from holdfast.journal.rows import JournalUnusable
from holdfast.model.documents.incidents import CheckRow, EvidenceRow, IncidentDocument
from holdfast.model.documents.jobs import HeatMap, JobDocument, JobsPage, LogPage, StepSeries
from holdfast.model.documents.live import Change
from holdfast.model.documents.nodes import DeviceRow, NodeDocument, NodesPage
from holdfast.model.documents.output import OutputFile, OutputPage, OutputWanted
from holdfast.uplink.receiving import NotReached, Uplinks
from holdfast.views.jobs.markdown import incident_markdown
from holdfast.views.jobs.series import marks_of, step_series
from holdfast.web.api.queries import HeatQuery, JobsQuery, LogQuery, NodesQuery, OutputQuery, StepsQuery
from holdfast.web.reading.log_follow import LogFollow
from holdfast.web.reading.looks import Looks
from holdfast.web.reading.node_reading import read_device, read_node
from holdfast.web.refusals import Refusal, bad_request, gone, not_there, unavailable
from holdfast.web.settings import ServerSettings

FIRST_INDEX_S = 5.0  # how long a request waits for an index that is just being opened
NEAR_MAX = 2_000
AROUND_LINES = 20  # on each side of a line of evidence
Answer = TypeVar("Answer")


class StateData:
    """The data of jobs in state folders, for any thread. Starts the index at once."""

    def __init__(
        self,
        settings: ServerSettings,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._wall = settings, wall
        self._places = Places(settings.state_dirs, settings.job)
        self._looks = Looks(clock, wall)
        self._steps = StepTimes()
        self._follow = LogFollow(self._reading_of)
        self._index = IndexService(
            self._places, settings.database, fleet=settings.fleet_dir, clock=clock, wall=wall
        )
        self._index.start()
        self.uplinks = Uplinks(settings.state_dirs[0], wall, self._changed)

    # Lists ------------------------------------------------------------------------------------------------

    def jobs(self, query: JobsQuery) -> JobsPage:
        wanted = JobsWanted(
            states=query.state,
            category=query.category,
            cause=query.cause,
            search=query.search,
            labels=_labels(query.label),
            since_s=query.since_s,
            cursor=query.cursor,
            limit=query.limit,
            grouped=query.group == "cause",
        )
        return self._asked(lambda database: jobs_page(database, wanted, self._wall()))

    def nodes(self, query: NodesQuery) -> NodesPage:
        return self._asked(
            lambda database: nodes_page(database, query.search, query.cursor, query.limit, query.isolated)
        )

    # One job ----------------------------------------------------------------------------------------------

    def place(self, job: str) -> JobDir:
        return self._place(job)[1]

    def line(self, job: str) -> AnyLine:
        place = self.place(job)
        return self.uplinks.line(place) if read_remote(place) is not None else open_line(place)

    def is_elsewhere(self, job: str) -> bool:
        return read_remote(self.place(job)) is not None

    def job(self, job: str) -> JobDocument:
        return self._reading_of(job).document()

    def incident(self, job: str, number: int) -> IncidentDocument:
        found = self._reading_of(job).incident(number)
        if found is None:
            raise not_there(f"job {job} has no incident {number}")
        try:
            similar = self._asked(lambda database: similar_incidents(database, found.row.cause, job, number))
        except Refusal:  # the incident is complete without it
            return found
        return replace(found, similar=similar)

    def evidence(self, job: str, number: int, evidence: str) -> EvidenceRow:
        found = next((one for one in self.incident(job, number).evidence if one.id == evidence), None)
        if found is None:
            raise not_there(f"incident {number} of job {job} has no evidence with id {evidence}")
        if found.place is None or found.place.offset is None:
            return found
        wide = OutputQuery(file=found.place.file, line=found.place.offset, limit=2 * AROUND_LINES + 1)
        try:
            lines = self.output(job, wide).lines
        except Refusal:  # the file is gone: what the journal kept of it is left
            return found
        at = next((n for n, one in enumerate(lines) if one.place.offset == found.place.offset), None)
        if at is None:
            return found
        before = tuple(one.text for one in lines[max(0, at - AROUND_LINES) : at])
        after = tuple(one.text for one in lines[at + 1 : at + 1 + AROUND_LINES])
        return replace(found, before=before or found.before, after=after or found.after)

    def bundle(self, job: str, number: int) -> Path:
        path = bundle_of(self.place(job), number)
        if not path.is_file() or path.is_symlink():
            raise not_there(
                f"incident {number} of job {job} has no bundle: it was not stored, or is still being written"
            )
        return path

    def markdown(self, job: str, number: int, lang: str) -> str:
        return incident_markdown(self.incident(job, number), "zh" if lang == "zh" else "en")

    def log(self, job: str, query: LogQuery) -> LogPage:
        reading = self._reading_of(job)
        lines = [
            one for one in reading.log if one.seq > query.after and (not query.kind or one.kind in query.kind)
        ]
        page = lines[: query.limit]
        # Lines of one entry have its seq: a page does not end between them.
        while len(page) < len(lines) and page and lines[len(page)].seq == page[-1].seq:
            page.append(lines[len(page)])
        is_last = len(page) == len(lines)
        following = reading.last_seq if is_last else page[-1].seq
        return LogPage(lines=tuple(page), next=max(query.after, following), live=not reading.summary.outcome)

    def steps(self, job: str, query: StepsQuery) -> StepSeries:
        reading = self._reading_of(job)
        try:
            steps = self._steps.of(reading.job)
        except JournalUnusable as error:
            raise unavailable(str(error)) from error
        marks = marks_of(reading.summary, reading.findings)
        return step_series(steps, from_s=query.from_s, to_s=query.to_s, points=query.points, marks=marks)

    def heat(self, job: str, query: HeatQuery) -> HeatMap:
        reading = self._reading_of(job)
        summary = reading.summary
        incidents = tuple(mark for mark in marks_of(summary, ()) if mark.kind == "incident")
        try:
            return heat_map(
                reading.job,
                summary.attempt,
                query.metric,
                from_s=query.from_s,
                to_s=query.to_s,
                columns=query.columns,
                incidents=incidents,
            )
        except NoSamples as error:
            raise not_there(str(error)) from error

    def files(self, job: str) -> tuple[OutputFile, ...]:
        return self._files(self.place(job))

    def output(self, job: str, query: OutputQuery) -> OutputPage:
        place = self.place(job)
        if query.file and query.file not in {one.file for one in self._files(place)}:
            raise not_there(f"job {job} has no such output file: {query.file[:200]}")
        try:
            if self.uplinks.is_connected(place):
                with suppress(NotReached):
                    return self.uplinks.output(place, wanted(query))
            return read_output(place, wanted(query))
        except ValueError as error:
            raise bad_request(str(error)) from error

    def checks(self, job: str) -> tuple[CheckRow, ...]:
        reading = self._reading_of(job)
        found = [reading.incident(one.number, with_files=False) for one in reading.summary.incidents]
        return tuple(check for one in found if one is not None for check in one.checks)

    # Nodes ------------------------------------------------------------------------------------------------

    def node(self, node: str) -> NodeDocument:
        return self._asked(lambda database: read_node(self._settings.fleet_dir, database, node))

    def device(self, serial: str) -> DeviceRow:
        return read_device(self._settings.fleet_dir, serial)

    # The server -------------------------------------------------------------------------------------------

    def changes(self) -> Sequence[Change]:
        return [*self._index.changes(), *self._follow.lines()]

    def follow(self, job: str) -> None:
        self._follow.begin(job)

    def watch(self, jobs: frozenset[str]) -> None:
        self._follow.watch(jobs)

    def fleet(self, jobs_max: int) -> FleetFacts:
        return self._asked(lambda database: fleet_facts(database, jobs_max))

    def running_nodes(self) -> Mapping[str, Sequence[str]]:
        return self._asked(nodes_of_running_jobs)

    def health(self) -> tuple[int, tuple[str, ...]]:
        state = self._index.state
        warnings = [state.trouble] if state.trouble else []
        jobs = 0
        try:
            jobs = state.progress.jobs if state.progress is not None else self.jobs(JobsQuery(limit=1)).total
        except Refusal as error:
            warnings.append(error.text)
        return jobs, tuple(dict.fromkeys(warnings))

    def close(self) -> None:
        self._index.stop()
        self.uplinks.close()

    # Inside -----------------------------------------------------------------------------------------------

    def _place(self, job: str) -> tuple[Place, JobDir]:
        try:
            place, found = self._places.named(job)
            self._places.job(job)
            return place, found
        except (NoSuchJob, ValueError) as error:
            raise not_there(f"there is no job {job[:100]}", self._near(job)) from error

    def _changed(self, job: JobDir) -> None:
        """Requests that the index reads a streamed job, because it was changed."""
        self._index.refresh(f"{job.name}{SEPARATOR}{job.path.parent.parent.name}")

    def _files(self, place: JobDir) -> tuple[OutputFile, ...]:
        """Returns the output files of a streamed job: from its host while it is connected, else what was
        received.
        """
        if self.uplinks.is_connected(place):
            with suppress(NotReached, ValueError):
                return self.uplinks.files(place)
        return read_files(place)

    def _near(self, job: str) -> list[str]:
        names = [one.name for one in StateDir(self._places.all[0].root).jobs()[:NEAR_MAX]]
        return get_close_matches(job[:100], names, n=3)

    def _reading_of(self, job: str) -> Reading:
        place, found = self._place(job)
        try:
            return self._looks.reading(place, found)
        except RecordUnreadable as error:
            raise gone(str(error)) from error

    def _asked(self, ask: Callable[[Database], Answer]) -> Answer:
        """Queries the index. Raises Refusal."""
        try:
            self._index.wait(lambda index: index.has_database, FIRST_INDEX_S)
            return ask(self._index.database)
        except BadCursor as error:
            raise bad_request(str(error)) from error
        except IndexUnusable as error:
            raise unavailable(str(error)) from error


def wanted(query: OutputQuery) -> OutputWanted:
    """Converts query parameters to a request for output.

    A given position is in the middle of the page by default.
    """
    has_place = query.line is not None or query.at_s is not None
    return OutputWanted(
        file=query.file,
        attempt=query.attempt,
        workers=query.worker,
        ranks=query.rank,
        cursor=query.cursor,
        offset=query.line,
        at_s=query.at_s,
        direction=query.direction or ("around" if has_place and not query.cursor else "before"),
        pattern=query.pattern,
        limit=query.limit,
    )


def _labels(pairs: Sequence[str]) -> dict[str, str]:
    """Parses labels of the form key:value. Raises Refusal."""
    found = {}
    for pair in pairs:
        key, colon, value = pair.partition(":")
        if not colon or not key:
            raise bad_request(f"the label {pair[:100]!r} is not of the form key:value")
        found[key] = value
    return found

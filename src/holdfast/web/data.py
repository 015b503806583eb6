"""Defines the interface through which the server reads jobs: documents, changes, and folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from holdfast.core.metrics.fleet_samples import FleetFacts
from holdfast.jobs.line import AnyLine
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.incidents import CheckRow, EvidenceRow, IncidentDocument
from holdfast.model.documents.jobs import HeatMap, JobDocument, JobsPage, LogPage, StepSeries
from holdfast.model.documents.live import Change
from holdfast.model.documents.nodes import DeviceRow, NodeDocument, NodesPage
from holdfast.model.documents.output import OutputFile, OutputPage
from holdfast.uplink.receiving import Uplinks
from holdfast.web.api.queries import HeatQuery, JobsQuery, LogQuery, NodesQuery, OutputQuery, StepsQuery


class Data(Protocol):
    """Interface to the data of jobs, as the server's handlers use it.

    Methods may be called from any thread, and raise Refusal if the requested object does not exist.
    """

    @property
    def uplinks(self) -> Uplinks:
        """Returns the connections of jobs on other hosts that stream their journals to this server."""

    def jobs(self, query: JobsQuery) -> JobsPage: ...

    def job(self, job: str) -> JobDocument: ...

    def incident(self, job: str, number: int) -> IncidentDocument: ...

    def evidence(self, job: str, number: int, evidence: str) -> EvidenceRow: ...

    def bundle(self, job: str, number: int) -> Path:
        """Returns the path of an incident's evidence bundle."""

    def markdown(self, job: str, number: int, lang: str) -> str: ...

    def log(self, job: str, query: LogQuery) -> LogPage: ...

    def steps(self, job: str, query: StepsQuery) -> StepSeries: ...

    def heat(self, job: str, query: HeatQuery) -> HeatMap: ...

    def files(self, job: str) -> tuple[OutputFile, ...]: ...

    def output(self, job: str, query: OutputQuery) -> OutputPage: ...

    def checks(self, job: str) -> tuple[CheckRow, ...]: ...

    def nodes(self, query: NodesQuery) -> NodesPage: ...

    def node(self, node: str) -> NodeDocument: ...

    def device(self, serial: str) -> DeviceRow: ...

    def place(self, job: str) -> JobDir:
        """Returns the folder of a job."""

    def line(self, job: str) -> AnyLine:
        """Returns a connection to the job's controller. Raises NoLine."""

    def is_elsewhere(self, job: str) -> bool:
        """Returns whether the job's controller runs on another host and streams the job to this server."""

    def follow(self, job: str) -> None:
        """Begins to follow a job's log: `changes` then returns lines that are written from now on."""

    def watch(self, jobs: frozenset[str]) -> None:
        """Sets the jobs whose new log lines `changes` includes."""

    def changes(self) -> Sequence[Change]:
        """Returns what has changed in jobs since the last call.

        Called several times a second, from one thread at a time.
        """

    def fleet(self, jobs_max: int) -> FleetFacts:
        """Returns the facts about jobs and nodes for /metrics. `jobs_max`: maximum number of running jobs to
        describe, the newest ones.
        """

    def running_nodes(self) -> Mapping[str, Sequence[str]]:
        """Returns the nodes of the current attempt of each running job."""

    def health(self) -> tuple[int, tuple[str, ...]]:
        """Returns the number of jobs, and the server's current problems, one sentence each."""

    def close(self) -> None: ...

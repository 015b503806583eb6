"""What the server needs of whoever reads jobs: documents, changes, and where a job lies."""

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
    """Every method may be called from any thread, and raises Refusal where there is no such thing."""

    @property
    def uplinks(self) -> Uplinks:
        """The connections of jobs that report themselves from elsewhere."""

    def jobs(self, query: JobsQuery) -> JobsPage: ...

    def job(self, job: str) -> JobDocument: ...

    def incident(self, job: str, number: int) -> IncidentDocument: ...

    def evidence(self, job: str, number: int, evidence: str) -> EvidenceRow: ...

    def bundle(self, job: str, number: int) -> Path:
        """The file with everything that was gathered about this incident."""

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
        """Its folder."""

    def line(self, job: str) -> AnyLine:
        """A connection to its controller. raises: NoLine"""

    def is_elsewhere(self, job: str) -> bool:
        """Whether its controller writes the journal on another host and reports it here."""

    def follow(self, job: str) -> None:
        """Somebody watches this job from now on: its next line is news."""

    def watch(self, jobs: frozenset[str]) -> None:
        """Of these jobs `changes` tells new lines of the fault-tolerance log, too."""

    def changes(self) -> Sequence[Change]:
        """What is new since the last call. Called several times a second, from one thread at a time."""

    def fleet(self, jobs_max: int) -> FleetFacts:
        """Facts for /metrics. `jobs_max`: the number of running jobs to describe, the newest ones."""

    def running_nodes(self) -> Mapping[str, Sequence[str]]:
        """The nodes of the current attempt of each running job."""

    def health(self) -> tuple[int, tuple[str, ...]]:
        """How many jobs there are, and what is wrong, one sentence each."""

    def close(self) -> None: ...

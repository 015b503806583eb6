"""What the stream of events tells, by the name of the event. `log` has a LogLine, `output` an OutputLine as data."""

from typing import Literal

from msgspec import Struct

from holdfast.model.documents.jobs import IncidentRow, JobRow, LogLine
from holdfast.model.documents.output import OutputLine

LiveKind = Literal["job", "incident", "log", "output", "reset", "end"]


class JobChanged(Struct, frozen=True, kw_only=True):
    """Event `job`. `row` None: the job is not there any more."""

    id: str
    etag: str = ""
    row: JobRow | None = None


class IncidentChanged(Struct, frozen=True, kw_only=True):
    """Event `incident`."""

    job: str
    row: IncidentRow


class StreamReset(Struct, frozen=True, kw_only=True):
    """Event `reset`: events were missed that cannot be sent again: read the documents anew."""

    why: str


class StreamEnded(Struct, frozen=True, kw_only=True):
    """Event `end`: the server ends the stream. `again`: it makes sense to connect again."""

    why: str
    again: bool = True


AnyLive = JobChanged | IncidentChanged | LogLine | OutputLine | StreamReset | StreamEnded


class Change(Struct, frozen=True, kw_only=True):
    """One event with the job that it is about."""

    kind: LiveKind
    job: str
    data: AnyLive

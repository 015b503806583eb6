"""Defines the data of server-sent events, by event name. `log` has a LogLine, `output` an OutputLine."""

from typing import Literal

from msgspec import Struct

from holdfast.model.documents.jobs import IncidentRow, JobRow, LogLine
from holdfast.model.documents.output import OutputLine

LiveKind = Literal["job", "incident", "log", "output", "reset", "end"]


class JobChanged(Struct, frozen=True, kw_only=True):
    """Server-sent event `job`: a job is new or has changed. `row`: None if it was removed."""

    id: str
    etag: str = ""
    row: JobRow | None = None


class IncidentChanged(Struct, frozen=True, kw_only=True):
    """Server-sent event `incident`: an incident is new or has changed."""

    job: str
    row: IncidentRow


class StreamReset(Struct, frozen=True, kw_only=True):
    """Event `reset`: events were lost and cannot be sent again. Read the documents again."""

    why: str


class StreamEnded(Struct, frozen=True, kw_only=True):
    """Event `end`: the server closes the stream. `again`: reconnecting makes sense."""

    why: str
    again: bool = True


AnyLive = JobChanged | IncidentChanged | LogLine | OutputLine | StreamReset | StreamEnded


class Change(Struct, frozen=True, kw_only=True):
    """A server-sent event with the job it is about."""

    kind: LiveKind
    job: str
    data: AnyLive

"""Defines the query parameters of the API as structs; the OpenAPI document is generated from them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from holdfast.model.documents.parts import JobState

PAGE_MAX = 500
# Seconds since the epoch; the bound keeps what is no number out.
Moment = Annotated[float, Meta(ge=0, le=1e11)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Position = Annotated[int, Meta(ge=0, le=1 << 53)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
Words = Annotated[str, Meta(max_length=200)]
Cursor = Annotated[str, Meta(max_length=4_096, description="`next` of the previous page.")]
Name = Annotated[str, Meta(max_length=253)]


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of query parameters. A field that is a tuple may be given several times."""


class NoQuery(Query, frozen=True):
    """Query of a route without parameters."""

    pass


class JobsQuery(Query, frozen=True):
    """Query parameters of the list of jobs."""

    state: tuple[JobState, ...] = ()
    category: Words = ""
    cause: Annotated[str, Meta(max_length=500)] = ""
    search: Words = ""
    label: Annotated[
        tuple[Words, ...], Meta(max_length=20, description="key:value; a job must have all of them.")
    ] = ()
    since_s: Moment | None = None
    group: Literal["", "cause"] = ""
    cursor: Cursor = ""
    limit: Limit = 100


class LogQuery(Query, frozen=True):
    """Query parameters of a job's log. `after`: return entries after this sequence number, which the previous page
    gave as `next`.

    `kind`: only entries of these kinds.
    """

    after: Position = 0
    limit: Limit = 200
    kind: Annotated[tuple[Words, ...], Meta(max_length=20)] = ()


class StepsQuery(Query, frozen=True):
    """Query parameters of step times."""

    from_s: Moment | None = None
    to_s: Moment | None = None
    points: Annotated[int, Meta(ge=1, le=4_000)] = 800


class HeatQuery(Query, frozen=True):
    """Query parameters of the heat map."""

    metric: Annotated[str, Meta(max_length=40, pattern="^[a-z0-9_-]*$")] = "utilisation"
    from_s: Moment | None = None
    to_s: Moment | None = None
    columns: Annotated[int, Meta(ge=1, le=2_000)] = 240


class OutputQuery(Query, frozen=True):
    """Query parameters of a job's output: which files, and the position in them.

    The position is `cursor`, or else `line` (an offset in bytes of the single `file`), or else `at_s`, or else the
    end. `rank` may be repeated; lines of several ranks are sorted by time. `direction`: empty means around a given
    position, or before the end if no position is given. `pattern`: only lines that match this regular expression.
    """

    file: Annotated[str, Meta(max_length=500)] = ""
    worker: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    rank: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    attempt: Count | None = None
    at_s: Moment | None = None
    line: Position | None = None
    pattern: Annotated[str, Meta(max_length=500)] = ""
    cursor: Cursor = ""
    direction: Literal["", "before", "after", "around"] = ""
    limit: Limit = 200


class NodesQuery(Query, frozen=True):
    """Query parameters of the list of nodes."""

    search: Words = ""
    isolated: bool | None = None
    cursor: Cursor = ""
    limit: Limit = 200


class MarkdownQuery(Query, frozen=True):
    """Query parameters of an incident as Markdown."""

    lang: Literal["en", "zh"] = "en"


class EventsQuery(Query, frozen=True):
    """Query parameters of the event stream of one job or all jobs.

    `job`: only this job, with its log. `worker`, `rank`: also send lines of their output, sorted by time; `output`:
    send those of all ranks. `attempt`: output of this attempt only. `last_event_id`: replaces the header
    Last-Event-ID.
    """

    job: Name = ""
    worker: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    rank: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    attempt: Count | None = None
    output: bool = False
    last_event_id: Annotated[str, Meta(max_length=100)] = ""


class ShellQuery(Query, frozen=True):
    """Query parameters of a shell."""

    worker: Count | None = None
    rows: Annotated[int, Meta(ge=1, le=500)] = 24
    columns: Annotated[int, Meta(ge=1, le=1_000)] = 80


class AuditQuery(Query, frozen=True):
    """Query parameters of the audit log."""

    limit: Limit = 100

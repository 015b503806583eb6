"""What a request may ask in its query, as structs: their fields, bounds and texts are also those of the OpenAPI document."""

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
Cursor = Annotated[str, Meta(max_length=4_096, description="`next` of the page before.")]
Name = Annotated[str, Meta(max_length=253)]


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field that is a tuple may be given several times."""


class NoQuery(Query, frozen=True):
    pass


class JobsQuery(Query, frozen=True):
    state: tuple[JobState, ...] = ()
    category: Words = ""
    cause: Annotated[str, Meta(max_length=500)] = ""
    search: Words = ""
    label: Annotated[tuple[Words, ...], Meta(max_length=20, description="key:value, all have to fit.")] = ()
    since_s: Moment | None = None
    group: Literal["", "cause"] = ""
    cursor: Cursor = ""
    limit: Limit = 100


class LogQuery(Query, frozen=True):
    """`after`: a seq, as in `next` of the page before. `kind`: only these kinds of lines."""

    after: Position = 0
    limit: Limit = 200
    kind: Annotated[tuple[Words, ...], Meta(max_length=20)] = ()


class StepsQuery(Query, frozen=True):
    from_s: Moment | None = None
    to_s: Moment | None = None
    points: Annotated[int, Meta(ge=1, le=4_000)] = 800


class HeatQuery(Query, frozen=True):
    metric: Annotated[str, Meta(max_length=40, pattern="^[a-z0-9_-]*$")] = "utilisation"
    from_s: Moment | None = None
    to_s: Moment | None = None
    columns: Annotated[int, Meta(ge=1, le=2_000)] = 240


class OutputQuery(Query, frozen=True):
    """Which files, and where in them: `cursor`, else `line` (an offset in bytes of the one `file`), else `at_s`, else the end.

    `rank` may be repeated: the lines of several ranks come on one time axis. `direction` empty: around a named place, else
    before. `pattern`: only lines that match.
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
    search: Words = ""
    isolated: bool | None = None
    cursor: Cursor = ""
    limit: Limit = 200


class MarkdownQuery(Query, frozen=True):
    lang: Literal["en", "zh"] = "en"


class EventsQuery(Query, frozen=True):
    """Of one job, with its log; with `worker` or `rank` also lines of its output. `last_event_id`: instead of the header Last-Event-ID."""

    job: Name = ""
    worker: Count | None = None
    rank: Count | None = None
    last_event_id: Annotated[str, Meta(max_length=100)] = ""


class ShellQuery(Query, frozen=True):
    worker: Count | None = None
    rows: Annotated[int, Meta(ge=1, le=500)] = 24
    columns: Annotated[int, Meta(ge=1, le=1_000)] = 80


class AuditQuery(Query, frozen=True):
    limit: Limit = 100

"""Defines the documents of jobs: a list row, groups of equal causes, a whole job, step times, heat maps."""

from msgspec import Struct

from holdfast.model.documents.parts import Cost, JobState, Sentence, Who


class JobRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job in the list. Times: seconds since the epoch.

    `id`: unique on the server; used in URLs. `source`: of a streamed job; empty: this state folder. `state_since_s`:
    start of the state. `seen_at_s`: the last event or sign of life. `sparkline`: seconds per step, the oldest first,
    at most 30. `goodput`: 0..1, the share of the time since submission spent on steps that count; None: no step so
    far. `sentence`: about the last incident, or the state. `cause`: equal for jobs with the same cause; empty: none.
    """

    id: str
    name: str
    state: JobState
    sentence: Sentence
    source: str = ""
    state_since_s: float | None = None
    submitted_at_s: float | None = None
    ended_at_s: float | None = None
    seen_at_s: float | None = None
    step: int | None = None
    total_steps: int | None = None
    step_s: float | None = None
    eta_s: float | None = None
    sparkline: tuple[float, ...] = ()
    goodput: float | None = None
    attempt: int = 0
    restarts: int = 0
    incidents: int = 0
    workers: int = 0
    ranks: int = 0
    nodes: tuple[str, ...] = ()
    engine: str = ""
    user: str = ""
    command: str = ""
    category: str = ""
    cause: str = ""
    labels: dict[str, str] = {}


class CauseGroup(Struct, frozen=True, kw_only=True):
    """Jobs that ended for the same cause. `jobs`: at most 100 ids, the newest first. `count`: all jobs."""

    cause: str
    category: str
    count: int
    sentence: Sentence
    jobs: tuple[str, ...]
    since_s: float
    until_s: float


class JobsPage(Struct, frozen=True, kw_only=True):
    """A page of jobs.

    `next`: cursor of the next page; empty: this is the last. `total`: jobs that match the filters. `as_of_s`: the
    server's clock.
    """

    jobs: tuple[JobRow, ...]
    groups: tuple[CauseGroup, ...] = ()
    next: str = ""
    total: int = 0
    states: dict[str, int] = {}
    as_of_s: float = 0.0


class AttemptRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt. `first_step`, `last_step`: the first and the last step it made."""

    number: int
    started_at_s: float
    ended_at_s: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    nodes: tuple[str, ...] = ()


class RankRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one rank in the job's current attempt."""

    rank: int
    worker: int
    node: str = ""
    pid: int = 0
    ended: bool = False
    code: int | None = None
    at_fault: bool = False


class WorkerRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one worker of a job.

    `files`: its output files in the current attempt, names and sizes in bytes.
    """

    worker: int
    node: str = ""
    ranks: tuple[int, ...] = ()
    step: int | None = None
    step_s: float | None = None
    files: dict[str, int] = {}


class IncidentRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One incident in a list.

    `rung`: the recovery action that was chosen last (docs/ladder.md). `over`: training continues, or the job has
    ended. `cause`: as in JobRow, equal for incidents of the same cause.
    """

    number: int
    attempt: int
    found_at_s: float
    sentence: Sentence
    category: str = ""
    class_: str = ""
    confidence: float | None = None
    who: tuple[Who, ...] = ()
    rung: str = ""
    over: bool = False
    recovered_at_s: float | None = None
    cost: Cost | None = None
    acknowledged_by: str = ""
    cause: str = ""


class LogLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the fault-tolerance log. `seq`: of the journal entry. `kind`: as in core.job.story.KINDS."""

    seq: int
    at_s: float
    kind: str
    text: str
    attempt: int = 0
    incident: int | None = None
    finding: str = ""


class Counters(Struct, frozen=True, kw_only=True):
    """Restart counters, with the names of the platforms' documents. `max_restarts` None: no automatic restarts."""

    max_restarts: int | None
    restarts: int
    hardware_reschedules: int
    replacements: int


class JobDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job, without its output and step times.

    `cost`: of all incidents, and by cause. `warnings`: limits of this document (a damaged journal, an unreachable
    host), one sentence each.
    """

    row: JobRow
    counters: Counters
    phase: str
    phase_words: str
    attempts: tuple[AttemptRow, ...] = ()
    incidents: tuple[IncidentRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    ranks: tuple[RankRow, ...] = ()
    isolated: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    findings: tuple[LogLine, ...] = ()
    cost: Cost | None = None
    policy: dict[str, object] = {}
    folder: str = ""
    supervisor: str = ""
    version: str = ""
    etag: str = ""
    warnings: tuple[str, ...] = ()


class LogPage(Struct, frozen=True, kw_only=True):
    """A page of the log. `next`: the seq to continue after; also set on the last page of a live job."""

    lines: tuple[LogLine, ...]
    next: int
    live: bool


class Bucket(Struct, frozen=True, kw_only=True, array_like=True):
    """Step times of consecutive steps: minimum, median, maximum in seconds. `at_s`: time of `first_step`."""

    at_s: float
    first_step: int
    count: int
    low_s: float
    median_s: float
    high_s: float
    loss: float | None = None


class Mark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A mark on charts: the start of an attempt, an incident, a slowdown or a pause (checkpoint, evaluation)."""

    kind: str
    at_s: float
    until_s: float | None = None
    step: int | None = None
    text: str = ""
    incident: int | None = None


class StepSeries(Struct, frozen=True, kw_only=True):
    """Step times of a job in a period, in at most `points` buckets. `steps`: the number of steps in total."""

    buckets: tuple[Bucket, ...]
    marks: tuple[Mark, ...] = ()
    steps: int = 0
    from_s: float | None = None
    to_s: float | None = None


class HeatMap(Struct, frozen=True, kw_only=True):
    """One value per rank and time span: `values[row][column]`; None: unknown.

    `metric`: utilisation (percent), cpu (cores), step (seconds behind the first), ... `ranks`: the rows.
    """

    metric: str
    unit: str
    ranks: tuple[int, ...]
    from_s: float
    column_s: float
    values: tuple[tuple[float | None, ...], ...]
    incidents: tuple[Mark, ...] = ()

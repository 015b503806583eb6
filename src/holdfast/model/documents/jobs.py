"""Documents about jobs: a row of the list, groups of equal causes, and one whole job."""

from msgspec import Struct

from holdfast.model.documents.parts import Cost, JobState, Sentence, Who


class JobRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the list of jobs.

    `id`: in addresses; unique among all jobs of the server. `source`: where it was streamed from; empty: this state folder.
    `state_since_s`: since when the state is so. `seen_at_s`: the last event or beat. Times: seconds since the epoch.
    `sparkline`: seconds of one step, the oldest first, at most 30. `goodput`: 0..1, the share of the time since the
    submission in which steps were made that counted; None: no step was seen.
    `sentence`: of the last incident, or of the job's state. `cause`: what makes two jobs "of the same cause"; empty: none.
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
    """Jobs that ended of the same cause. `jobs`: ids, the newest first, at most 100; `count`: all of them."""

    cause: str
    category: str
    count: int
    sentence: Sentence
    jobs: tuple[str, ...]
    since_s: float
    until_s: float


class JobsPage(Struct, frozen=True, kw_only=True):
    """`next`: the cursor of the page after this; empty: this is the last. `total`: jobs that fit the filters.

    `as_of_s`: the server's clock.
    """

    jobs: tuple[JobRow, ...]
    groups: tuple[CauseGroup, ...] = ()
    next: str = ""
    total: int = 0
    states: dict[str, int] = {}
    as_of_s: float = 0.0


class AttemptRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`steps`: the first and the last that it made."""

    number: int
    started_at_s: float
    ended_at_s: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    nodes: tuple[str, ...] = ()


class RankRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    rank: int
    worker: int
    node: str = ""
    pid: int = 0
    ended: bool = False
    code: int | None = None
    at_fault: bool = False


class WorkerRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`files`: its output of the present attempt, names and sizes in bytes."""

    worker: int
    node: str = ""
    ranks: tuple[int, ...] = ()
    step: int | None = None
    step_s: float | None = None
    files: dict[str, int] = {}


class IncidentRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One incident in a list. `rung`: the last one chosen (DESIGN §5). `over`: training goes on, or the job has ended.

    `cause`: as in JobRow: incidents of the same cause have the same one.
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
    """One line of the fault-tolerance log. `seq`: of the journal's entry; `kind`: as in core.job.story.KINDS."""

    seq: int
    at_s: float
    kind: str
    text: str
    attempt: int = 0
    incident: int | None = None
    finding: str = ""


class Counters(Struct, frozen=True, kw_only=True):
    """As the platforms' documents name them. `max_restarts` None: no automatic restarts."""

    max_restarts: int | None
    restarts: int
    hardware_reschedules: int
    replacements: int


class JobDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job, whole, but for its output and its step times. `cost`: of all incidents together, and by cause.

    `warnings`: what limits this document (a damaged journal, a host that does not answer), one sentence each.
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
    """`next`: seq to go on after; the last page of a live job has it too."""

    lines: tuple[LogLine, ...]
    next: int
    live: bool


class Bucket(Struct, frozen=True, kw_only=True, array_like=True):
    """Steps from `first_step` on, joined: seconds of one step (least, median, greatest) and the time of the first."""

    at_s: float
    first_step: int
    count: int
    low_s: float
    median_s: float
    high_s: float
    loss: float | None = None


class Mark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that the charts mark: an attempt's start, an incident, a slowdown, a pause (checkpoint, evaluation)."""

    kind: str
    at_s: float
    until_s: float | None = None
    step: int | None = None
    text: str = ""
    incident: int | None = None


class StepSeries(Struct, frozen=True, kw_only=True):
    """Step times of a job between two moments, in at most `points` buckets. `steps`: how many there are in all."""

    buckets: tuple[Bucket, ...]
    marks: tuple[Mark, ...] = ()
    steps: int = 0
    from_s: float | None = None
    to_s: float | None = None


class HeatMap(Struct, frozen=True, kw_only=True):
    """One value for each rank and span of time: `values[row][column]`; None: nothing is known.

    `metric`: utilisation (percent), cpu (cores), step (seconds behind the first), ... `ranks`: the rows.
    """

    metric: str
    unit: str
    ranks: tuple[int, ...]
    from_s: float
    column_s: float
    values: tuple[tuple[float | None, ...], ...]
    incidents: tuple[Mark, ...] = ()

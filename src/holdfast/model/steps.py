"""Defines the steps in a training's logs, and conclusions from their times. No behaviour."""

from typing import Literal

from msgspec import Struct


class StepRecord(Struct, frozen=True, gc=False):
    """One iteration record of a log: one line, or several that belong together. Times in seconds.

    `step` grows through a run: if the log's counter restarts with each epoch, earlier epochs are added.
    `printed_s` is the time of one step as printed; `time_s` is the real time as far as the log shows it: for
    averages, sums or rates it is computed from differences. Both are means over the last `steps` steps. None:
    not in the log.
    """

    step: int | None
    time_s: float | None = None
    printed_s: float | None = None
    steps: int = 1
    at_s: float | None = None  # the line's own time stamp, else the agent's; in seconds, with any origin
    run: int = 0  # counts the runs in one log: appended, or resumed from an earlier step
    number: int | None = None  # the step as printed
    epoch: int | None = None
    total: int | None = None  # the last step of the run, on the scale of `step`
    loss: float | None = None  # may be nan or infinite
    throughput: float | None = None  # as printed, in the format's own unit
    batch: float | None = None  # global batch size, in samples or tokens, as printed
    sequence: int | None = None  # sequence length, as printed
    data_s: float | None = None  # the part of printed_s that was spent waiting for data
    rank: int | None = None  # who wrote the line, where it says so
    # Read only by a reader of details (parsers/steps/details.py):
    grad_norm: float | None = None  # may be nan or infinite
    learning_rate: float | None = None
    data: str | None = None  # what names the samples of the step: a hash, ids, a count of consumed samples


class RankStep(Struct, frozen=True, gc=False, array_like=True):
    """One rank's logged time of one step, in seconds. `data_s`: the part spent waiting for data."""

    step: int
    rank: int
    time_s: float
    data_s: float | None = None


# schedule: the run's settings let the work of a step grow (batch, sequence, window); stage: it grows now.
MarkKind = Literal["checkpoint", "evaluation", "compile", "profile", "start", "schedule", "stage"]


class PhaseMark(Struct, frozen=True, gc=False):
    """A log line that explains longer steps: a checkpoint is saved, a graph is compiled, the batch grows."""

    kind: MarkKind
    at_s: float | None = None
    run: int = 0
    rank: int | None = None


PhaseKind = Literal["step", "checkpoint", "evaluation", "compile", "warmup", "data"]


class Phase(Struct, frozen=True, kw_only=True):
    """A range of steps whose duration has the same explanation.

    `count`: number of such steps; `median_s`: median duration of one, in seconds.
    """

    kind: PhaseKind
    first_step: int | None
    last_step: int | None
    count: int
    median_s: float


# lasting: it stays; transient: it has ended; ramp: it grows slowly; slow-start: the run began slow, for longer
# than a warm-up; repeated: slow ranges of steps come and go.
SlowdownKind = Literal["lasting", "transient", "ramp", "slow-start", "repeated"]


class Slowdown(Struct, frozen=True, kw_only=True):
    """A range of steps that took longer than before. `last_step` None: ongoing.

    `ratio`: after_s / before_s. `cost_gpu_hours`: cost so far; None for throughput; one GPU is assumed if the
    number of ranks is unknown. `what`: everyone, one rank, data, or one kind of pause.
    """

    first_step: int | None
    last_step: int | None
    before_s: float
    after_s: float
    ratio: float
    kind: SlowdownKind
    cost_gpu_hours: float | None
    explanation: str
    explanation_zh: str = ""
    what: str = "everyone"
    run: int = 0
    found_step: int | None = None  # step at which it was reported
    since_s: float | None = None  # time stamp of first_step


class Spike(Struct, frozen=True, kw_only=True):
    """A single long step, or a few. `period`: distance in steps, if they recur at regular distances."""

    first_step: int | None
    count: int
    time_s: float
    ratio: float  # to the usual step
    period: int | None = None
    kind: str = ""  # its explanation: checkpoint, evaluation, garbage collection, ...; empty: unexplained
    run: int = 0


class LossSpike(Struct, frozen=True, kw_only=True):
    """A jump of the training loss at one step. `before`: the usual loss."""

    step: int | None
    loss: float
    before: float


class LossReport(Struct, frozen=True, kw_only=True):
    """The last loss of a training, and its bad losses."""

    last: float | None = None  # None also if it is not finite, because JSON has no such numbers
    nan_at: int | None = None  # the first step with a loss that is not finite
    spikes: tuple[LossSpike, ...] = ()
    diverged_at: int | None = None


class RankTimes(Struct, frozen=True, kw_only=True):
    """One rank's own step times, if ranks log them. `ratio`: relative to the median of the other ranks that do the
    same work.
    """

    count: int
    median_s: float | None
    ratio: float | None = None
    last_step: int | None = None
    data_s: float | None = None


# The evidence for a straggler: times that ranks logged; when each entered a collective; the ranks that others
# waited for in samples; CPU throttling; its device.
StragglerSource = Literal["log-times", "arrivals", "awaited", "cpu", "device"]


class Straggler(Struct, frozen=True, kw_only=True):
    """A rank, or all ranks of a node, that others wait for because it is slower, not because it stopped."""

    ranks: tuple[int, ...]
    node: str = ""  # if all its ranks are on it
    ratio: float | None  # own time divided by that of its peers; None: only known that others wait for it
    source: StragglerSource
    first_step: int | None = None
    confidence: float = 0.0  # 0..1
    explanation: str = ""
    explanation_zh: str = ""


FindingKind = Literal[
    "slowdown",
    "slowdown-over",
    "platform-slowdown",
    "straggler",
    "straggler-over",
    "throughput-drop",
    "loss-nan",
    "loss-spike",
    "loss-diverged",
    "step-stands",
    "resume-check",
]


class StepFinding(Struct, frozen=True, kw_only=True):
    """A finding on steps for the fault-tolerance log, which never blocks. `numbers`: its evidence."""

    kind: FindingKind
    text: str
    text_zh: str = ""
    step: int | None = None
    at_s: float | None = None
    numbers: dict[str, float | int | str | list[float]] = {}


class StepNow(Struct, frozen=True, kw_only=True):
    """A training's current progress. Times of one step in seconds.

    `eta_s`: remaining time to `total` at the current speed. `checkpoint_at_s`: when its log last reported
    that a checkpoint is saved; None if it has not done so in this attempt.
    """

    step: int | None = None
    total: int | None = None
    now_s: float | None = None
    median_s: float | None = None
    best_s: float | None = None
    eta_s: float | None = None
    loss: float | None = None
    slowdown: str = ""  # the open slowdown in a few words
    straggler: str = ""
    phase: str = ""
    checkpoint_at_s: float | None = None


class FirstLast(Struct, frozen=True, kw_only=True):
    """The first or last training step in a log, with its time."""

    step: int | None = None
    step_time_s: float | None = None


class StepReport(Struct, frozen=True, kw_only=True):
    """All conclusions about the steps in one log, or in the logs of one job: the JSON of `holdfast steps`."""

    framework: str | None = None
    iteration_lines: int = 0  # distinct iteration records; the same step from several ranks counts once
    first: FirstLast = FirstLast()
    last: FirstLast = FirstLast()
    median_step_time_s: float | None = None
    phases: tuple[Phase, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    spikes: tuple[Spike, ...] = ()
    loss: LossReport = LossReport()
    ranks: dict[int, RankTimes] = {}
    stragglers: tuple[Straggler, ...] = ()
    runs: int = 0
    notes: tuple[str, ...] = ()  # what could not be read, or is uncertain


class CurvePoint(Struct, frozen=True, gc=False):
    """A range of steps of the step-time curve, for plots; their number is bounded, however long the run."""

    first_step: int
    last_step: int
    median_s: float
    low_s: float
    high_s: float
    run: int = 0
    kind: PhaseKind = "step"
    rank: int | None = None
    at_s: float | None = None


class HeatMap(Struct, frozen=True, kw_only=True):
    """Step times by rank and range of steps: values[i][j] belongs to rank ranks[i] and the range that begins
    at steps[j].
    """

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]  # seconds

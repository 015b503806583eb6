"""What the controller can be told. Past tense; each names the attempt or incident it belongs to."""

from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from holdfast.model.verdicts import Verdict

Numbers: TypeAlias = dict[str, float | int | str | list[float]]


class Event(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One thing that happened. `at_s`: the job's clock on arrival, seconds since the Unix epoch.

    The job's clock is steered by the monotonic clock and never goes back, whatever the wall clock does.

    `via`: "stream/seq" of the report that an agent elsewhere told it in. A controller that goes on from its journal
    knows by it what it has heard already.
    """

    at_s: float
    via: str | UnsetType = UNSET


class JobSubmitted(Event, frozen=True, tag="job-submitted"):
    job: str
    workers: int
    command: tuple[str, ...] = ()


class ControllerResumed(Event, frozen=True, tag="controller-resumed"):
    """A controller replayed the journal and goes on. Orders without a result are given again."""


class JobMoved(Event, frozen=True, tag="job-moved"):
    """The scheduler has ended every process of the job, and has started it again, on nodes that may be others.

    `away_s`: since the controller before has said so, for how long nodes were nobody's; None: it has not, or somebody
    else may have had them.
    """

    reason: str
    away_s: float | None = None


class Tick(Event, frozen=True, tag="tick"):
    """Time passed and nothing else did."""


class Placed(Struct, frozen=True):
    worker: int
    node: str


class WorkersPlaced(Event, frozen=True, tag="workers-placed"):
    attempt: int
    placed: tuple[Placed, ...]


class PlacementFailed(Event, frozen=True, tag="placement-failed"):
    """No healthy node could be had for some of the workers asked for. `hopeless`: and waiting will not bring one."""

    attempt: int
    reason: str
    hopeless: bool = False


class AttemptStarted(Event, frozen=True, tag="attempt-started"):
    """The command runs in every worker."""

    attempt: int


class AttemptStartFailed(Event, frozen=True, tag="attempt-start-failed"):
    """The command could not be started at all: it does not exist, or may not be run."""

    attempt: int
    worker: int
    code: int  # what a shell would give: 126 not executable, 127 not found
    reason: str


class RankStarted(Event, frozen=True, tag="rank-started"):
    attempt: int
    worker: int
    rank: int
    pid: int


class RankExited(Event, frozen=True, tag="rank-exited"):
    attempt: int
    worker: int
    rank: int
    code: int | None  # -N when killed by signal N; None when the exit was missed
    reason: str = ""  # known before the process is gone: an uncaught exception


class WorkerExited(Event, frozen=True, tag="worker-exited"):
    """The launch command of a worker ended."""

    attempt: int
    worker: int
    code: int  # -N when killed by signal N


class StepReached(Event, frozen=True, tag="step-reached"):
    """The training's log named this step. At most one a second, and the first of an attempt at once."""

    attempt: int
    step: int


class AttemptStopped(Event, frozen=True, tag="attempt-stopped"):
    """Nothing of the attempt is left but the processes in `left`, which cannot be killed (state D)."""

    attempt: int
    left: tuple[int, ...] = ()


class HangFound(Event, frozen=True, tag="hang-found"):
    attempt: int
    hang: str  # a HangKind of model.samples: stopped, blocked-io, quiet, spinning, silent, exit-hang
    culprits: tuple[int, ...]
    reason: str


class DeviceFaulted(Event, frozen=True, tag="device-faulted"):
    node: str
    device: str
    code: str


class DeviceHealed(Event, frozen=True, tag="device-healed"):
    """The answer to HealDevice."""

    node: str
    device: str
    healed: bool


class NodeLost(Event, frozen=True, tag="node-lost"):
    """`with_job`: the scheduler ends the whole job and takes its nodes away; nothing is wrong with this one."""

    node: str
    reason: str
    with_job: bool = False


class NodeReturned(Event, frozen=True, tag="node-returned"):
    """A node that was lost, or a new one, can be used. An isolated node stays isolated."""

    node: str


class NodeIsolated(Event, frozen=True, tag="node-isolated"):
    """The answer to IsolateNode: nothing of this job will be placed there."""

    node: str


class NodeReleased(Event, frozen=True, tag="node-released"):
    """A person, or a passed check, gave an isolated node back."""

    node: str


class CheckTold(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one check found wrong on a node. `status`: warn or fail; `fault`: as in model.checks. `advice`: English."""

    node: str
    check: str
    status: str
    text: str
    device: str = ""
    advice: str = ""
    fault: str = ""
    category: str = ""


class DeviceSeen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device of a node. `device`: as the node calls it (PCI address); `serial`: what goes with it to another node."""

    node: str
    device: str
    serial: str
    model: str = ""


class NodesChecked(Event, frozen=True, tag="nodes-checked"):
    """The answer to CheckNodes, or what troubleshooting found while an incident is diagnosed.

    `context`: boot or on-failure. `isolate`: node -> why; `stop`: why the run cannot work anywhere, with what to do.
    The counts are of checks. `why_not`: why nothing was checked. `not_passed`: of several nodes, those where something
    failed or nothing was checked.
    """

    attempt: int  # of boot: the one that is about to start
    nodes: tuple[str, ...]
    context: str = "boot"
    status: str = "skip"
    isolate: dict[str, str] = {}
    stop: str = ""
    troubles: tuple[CheckTold, ...] = ()
    passed: int = 0
    warned: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    why_not: str = ""
    devices: tuple[DeviceSeen, ...] = ()  # of boot: those whose serial numbers are known
    not_passed: tuple[str, ...] = ()


class VerdictReached(Event, frozen=True, tag="verdict-reached"):
    """The answer to Diagnose."""

    incident: int
    verdict: Verdict
    problem: str = ""  # what makes two failures the same problem
    user_code: bool = False  # the training code is at fault, with high confidence
    environment: bool = False  # a restart elsewhere or later can help


class StopRequested(Event, frozen=True, tag="stop-requested"):
    """A person, the scheduler or a signal asks the job to end. `force`: at once, no grace.

    `code`: what to exit with if the command itself leaves none, 128 + the signal's number.
    `finish_s`: the signal was passed on, and the command may take this long to end by itself.
    `by`: who asks: signal, scheduler, preemption (the scheduler, for another job), person; empty: an older journal.
    """

    reason: str
    force: bool = False
    code: int = 130
    finish_s: float = 0.0
    by: str = ""


class RestartRequested(Event, frozen=True, tag="restart-requested"):
    """A person asks for the end of this attempt and the start of the next one. It is no failure and costs no restart."""

    attempt: int
    by: str
    reason: str = ""


class FindingNoted(Event, frozen=True, tag="finding-noted"):
    """Something worth a line in the log that never blocks the training.

    `numbers`: those that made it; of steps and stragglers they are the evidence. Numbers that are not finite, which
    JSON does not have, are words in it.
    """

    finding: str  # its kind; of steps one of model.steps.FindingKind
    text: str
    attempt: int | None = None
    numbers: Numbers = {}


class IncidentAcknowledged(Event, frozen=True, tag="incident-acknowledged"):
    """A person has seen the incident. Changes nothing in the job. `by`: who, in their own name."""

    incident: int
    by: str
    text: str = ""


class VerdictCorrected(Event, frozen=True, tag="verdict-corrected"):
    """A person says that the verdict of this incident is wrong. Both are kept; the recovery is not touched.

    `category`: the right one, as in docs/words.md. `text`: what the person saw.
    """

    incident: int
    by: str
    category: str
    text: str = ""


AnyEvent = (
    JobSubmitted
    | ControllerResumed
    | JobMoved
    | Tick
    | WorkersPlaced
    | PlacementFailed
    | AttemptStarted
    | AttemptStartFailed
    | RankStarted
    | RankExited
    | WorkerExited
    | StepReached
    | AttemptStopped
    | HangFound
    | DeviceFaulted
    | DeviceHealed
    | NodeLost
    | NodeReturned
    | NodeIsolated
    | NodeReleased
    | NodesChecked
    | VerdictReached
    | StopRequested
    | RestartRequested
    | FindingNoted
    | IncidentAcknowledged
    | VerdictCorrected
)

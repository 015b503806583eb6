"""Defines events, the input of the controller.

Named in the past tense; each names its attempt or incident.
"""

from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from holdfast.model.policy import PolicyFields
from holdfast.model.verdicts import Verdict

Numbers: TypeAlias = dict[str, float | int | str | list[float]]


class Event(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """An input of the controller. `at_s`: when it arrived, on the job's clock, in seconds since the epoch.

    The job's clock is advanced by the monotonic clock and never goes back, whatever the wall clock does. `via`:
    "stream/seq" of the agent's report that contains this event. A resumed controller uses it to skip reports that the
    journal already contains.
    """

    at_s: float
    via: str | UnsetType = UNSET


class JobSubmitted(Event, frozen=True, tag="job-submitted"):
    """Event: the job was submitted."""

    job: str
    workers: int
    command: tuple[str, ...] = ()


class ControllerResumed(Event, frozen=True, tag="controller-resumed"):
    """Event: a controller has replayed the journal and continues. Orders without a result are repeated."""


class JobMoved(Event, frozen=True, tag="job-moved"):
    """Event: the scheduler has ended all processes of the job and restarted it, possibly on other nodes.

    `away_s`: how long the nodes were unused, since the previous controller recorded the move; None if
    unknown, or if another job may have used them.
    """

    reason: str
    away_s: float | None = None


class Tick(Event, frozen=True, tag="tick"):
    """Event: a second has passed without another event."""


class Placed(Struct, frozen=True):
    """The placement of one worker on a node."""

    worker: int
    node: str


class WorkersPlaced(Event, frozen=True, tag="workers-placed"):
    """Event: workers were placed on nodes."""

    attempt: int
    placed: tuple[Placed, ...]


class PlacementFailed(Event, frozen=True, tag="placement-failed"):
    """Event: no healthy node is available for some of the requested workers.

    `hopeless`: True if waiting will not help.
    """

    attempt: int
    reason: str
    hopeless: bool = False


class AttemptStarted(Event, frozen=True, tag="attempt-started"):
    """Event: the command of an attempt runs in every worker."""

    attempt: int


class AttemptStartFailed(Event, frozen=True, tag="attempt-start-failed"):
    """Event: the command could not be started: it does not exist, or is not executable."""

    attempt: int
    worker: int
    code: int  # as in a shell: 126 not executable, 127 not found
    reason: str


class RankStarted(Event, frozen=True, tag="rank-started"):
    """Event: a process of a rank was found."""

    attempt: int
    worker: int
    rank: int
    pid: int


class RankExited(Event, frozen=True, tag="rank-exited"):
    """Event: the process of a rank ended."""

    attempt: int
    worker: int
    rank: int
    code: int | None  # -N when killed by signal N; None when the exit was missed
    reason: str = ""  # known before the process is gone: an uncaught exception


class WorkerExited(Event, frozen=True, tag="worker-exited"):
    """Event: the launch command of a worker ended."""

    attempt: int
    worker: int
    code: int  # -N when killed by signal N


class StepReached(Event, frozen=True, tag="step-reached"):
    """Event: the training's log contained this step.

    At most one event a second; the first step of an attempt at once.
    """

    attempt: int
    step: int


class AttemptStopped(Event, frozen=True, tag="attempt-stopped"):
    """Event: all processes of the attempt have ended, except those in `left`, which cannot be killed (state
    D).
    """

    attempt: int
    left: tuple[int, ...] = ()


class HangFound(Event, frozen=True, tag="hang-found"):
    """Event: a hang was confirmed."""

    attempt: int
    hang: str  # a HangKind of model.samples: stopped, blocked-io, quiet, spinning, silent, exit-hang
    culprits: tuple[int, ...]
    reason: str


class DeviceFaulted(Event, frozen=True, tag="device-faulted"):
    """Event: a device reported a fault."""

    node: str
    device: str
    code: str


class DeviceHealed(Event, frozen=True, tag="device-healed"):
    """Event: the result of the order HealDevice, whether the device has recovered."""

    node: str
    device: str
    healed: bool


class NodeLost(Event, frozen=True, tag="node-lost"):
    """Event: a node is lost.

    `with_job`: the scheduler takes away all nodes of the job; this one has no fault.
    """

    node: str
    reason: str
    with_job: bool = False


class NodeReturned(Event, frozen=True, tag="node-returned"):
    """Event: a lost or new node can be used. An isolated node stays isolated."""

    node: str


class NodeIsolated(Event, frozen=True, tag="node-isolated"):
    """Event: the result of the order IsolateNode: no worker of this job will be placed on the node."""

    node: str


class NodeReleased(Event, frozen=True, tag="node-released"):
    """Event: a person, or a passed check, released an isolated node."""

    node: str


class CheckFinding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One check's failure or warning on a node. `fault`: as in model.checks. `advice`: in English."""

    node: str
    check: str
    status: str
    text: str
    device: str = ""
    advice: str = ""
    fault: str = ""
    category: str = ""


class DeviceSeen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device of a node. `device`: its name there (PCI address); `serial`: its permanent identity."""

    node: str
    device: str
    serial: str
    model: str = ""


class NodesChecked(Event, frozen=True, tag="nodes-checked"):
    """Event: the result of the order CheckNodes, or of checks during a diagnosis.

    `context`: boot or on-failure. `isolate`: reason by node; `stop`: why the run cannot work on any node,
    with advice. Counts are numbers of checks. `why_not`: why nothing was checked. `not_passed`: nodes on
    which a check failed or none ran.
    """

    attempt: int  # for a boot check, the attempt that is about to start
    nodes: tuple[str, ...]
    context: str = "boot"
    status: str = "skip"
    isolate: dict[str, str] = {}
    stop: str = ""
    troubles: tuple[CheckFinding, ...] = ()
    passed: int = 0
    warned: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    why_not: str = ""
    devices: tuple[DeviceSeen, ...] = ()  # for a boot check, devices with known serial numbers
    not_passed: tuple[str, ...] = ()


class VerdictReached(Event, frozen=True, tag="verdict-reached"):
    """Event: the result of the order Diagnose."""

    incident: int
    verdict: Verdict
    problem: str = ""  # key that is equal for the same problem in two failures
    user_code: bool = False  # the training code is at fault, with high confidence
    environment: bool = False  # a restart elsewhere or later can help


class StopRequested(Event, frozen=True, tag="stop-requested"):
    """Event: a user, the scheduler or a signal has requested the end of the job.

    `force`: at once, without a grace period.

    `code`: exit code if the command leaves none, 128 + the signal's number. `finish_s`: the signal was
    forwarded, and the command may take this long to end by itself. `by`: who requested it.
    """

    reason: str
    force: bool = False
    code: int = 130
    finish_s: float = 0.0
    by: str = ""


class RestartRequested(Event, frozen=True, tag="restart-requested"):
    """Event: a user has requested the end of this attempt and the start of the next one.

    No failure; no restart is charged.
    """

    attempt: int
    by: str
    reason: str = ""


class FindingNoted(Event, frozen=True, tag="finding-noted"):
    """Event: a finding for the log that never blocks the training.

    `numbers`: its evidence, for steps and stragglers. Non-finite numbers, which JSON lacks, are strings.
    """

    finding: str  # its kind; for steps one of model.steps.FindingKind
    text: str
    attempt: int | None = None
    numbers: Numbers = {}


class PolicyChanged(Event, frozen=True, tag="policy-changed"):
    """Event: policy settings were changed while the job runs.

    `fields`: all changes since the start of the job.

    `by`: what changed them, such as an annotation of the job's object.
    """

    fields: PolicyFields
    text: str
    by: str = ""


class IncidentAcknowledged(Event, frozen=True, tag="incident-acknowledged"):
    """Event: a user has acknowledged an incident. It does not change the job."""

    incident: int
    by: str
    text: str = ""


class VerdictCorrected(Event, frozen=True, tag="verdict-corrected"):
    """Event: a user has corrected the verdict of an incident. Both are kept; the recovery is not changed.

    `category`: the correct one, as in docs/words.md. `text`: a comment.
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
    | PolicyChanged
    | IncidentAcknowledged
    | VerdictCorrected
)

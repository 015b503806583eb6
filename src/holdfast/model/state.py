"""The state of a job. Only `core.job.decide` makes a new one."""

from msgspec import Struct

from holdfast.model.policy import PolicyFields
from holdfast.model.verdicts import Verdict


class Worker(Struct, frozen=True):
    """`node` is None while the worker has no node. `fresh`: placed, and not started there yet.

    `to_check`: the suite (quick, full) that its node must pass before the start; empty if there is none.
    """

    node: str | None = None
    schedule_cnt: int = 0
    proc_start_cnt: int = 0
    fresh: bool = False
    to_check: str = ""


class Device(Struct, frozen=True):
    node: str
    device: str
    code: str


class DeviceFault(Struct, frozen=True, tag="device"):
    device: Device
    steps_up: bool  # did not heal, or came back too often
    user_caused: bool = False


class NodeFault(Struct, frozen=True, tag="node"):
    node: str
    reason: str


class CheckFault(Struct, frozen=True, tag="check"):
    """A check found the node, or one of its devices, broken. No `node`: the run cannot work on any."""

    node: str
    reason: str


class HangFault(Struct, frozen=True, tag="hang"):
    hang: str
    culprits: tuple[int, ...]
    reason: str


class ExitFault(Struct, frozen=True, tag="exit"):
    worker: int
    code: int
    rank: int | None = None
    reason: str = ""


class StartFault(Struct, frozen=True, tag="start"):
    worker: int
    code: int
    reason: str


AnyFault = DeviceFault | NodeFault | CheckFault | HangFault | ExitFault | StartFault


class Incident(Struct, frozen=True):
    """From the first finding of trouble until training resumes or the job fails."""

    number: int
    attempt: int
    since_s: float
    faults: tuple[AnyFault, ...] = ()
    verdict: Verdict | None = None
    problem: str = ""
    user_code: bool = False
    environment: bool = False
    rung: str = ""
    counted: bool = False  # one incident costs at most one restart
    replacement_failed: bool = False


class BootChecked(Struct, frozen=True):
    """The last boot check. `known`: its findings, as "CHECK DEVICE"."""

    status: str
    known: tuple[str, ...] = ()


class NodePassed(Struct, frozen=True):
    """A node's passed boot check, which nothing has cast doubt on since."""

    node: str
    at_s: float


class DeviceSeen(Struct, frozen=True):
    device: Device
    at_s: float


class Job(Struct, frozen=True):
    """Everything that persists over phases."""

    name: str = ""
    workers: tuple[Worker, ...] = ()
    attempt: int = 0
    alive: bool = False  # processes of `attempt` may exist
    incident: Incident | None = None
    incidents: int = 0
    restarts: int = 0  # what max_restarts counts
    replacements: int = 0
    hardware_reschedules: int = 0
    hangs_in_a_row: int = 0
    problem: str = ""  # of the last unconditional restart
    problems_in_a_row: int = 0
    problem_step: int | None = None
    error: str = ""  # the exception of the last unconditional restart (Verdict.raised)
    isolated: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    to_isolate: tuple[str, ...] = ()
    to_heal: tuple[Device, ...] = ()
    devices_seen: tuple[DeviceSeen, ...] = ()  # within the repeat window
    step: int | None = None  # the highest of this attempt
    bar_step: int = 0  # the best step of the attempts before
    boot: BootChecked | None = None
    passed: tuple[NodePassed, ...] = ()  # the latest last; no node twice
    policy_fields: PolicyFields | None = None  # changed since the start


class New(Struct, frozen=True, tag="new"):
    pass


class Placing(Struct, frozen=True, tag="placing"):
    since_s: float


class Waiting(Struct, frozen=True, tag="waiting"):
    """No healthy node. `asked_s`: when the engine was last asked."""

    since_s: float
    asked_s: float


class Checking(Struct, frozen=True, tag="checking"):
    """The nodes are checked before the next attempt starts there."""

    since_s: float


class Running(Struct, frozen=True, tag="running"):
    """`finished`: workers whose command ended with code 0. `handled`: the open incident has its rung, and only
    waiting is left (notify, shadow, or a restart that has not reached a step yet).
    """

    since_s: float
    finished: tuple[int, ...] = ()
    handled: bool = False


class Diagnosing(Struct, frozen=True, tag="diagnosing"):
    since_s: float
    finished: tuple[int, ...] = ()


class Isolating(Struct, frozen=True, tag="isolating"):
    since_s: float


class Stopping(Struct, frozen=True, tag="stopping"):
    since_s: float
    asked_s: float


class Healing(Struct, frozen=True, tag="healing"):
    since_s: float


class Holding(Struct, frozen=True, tag="holding"):
    """The job has failed; its scene is kept for people until `until_s`."""

    until_s: float
    code: int
    reason: str


class Finishing(Struct, frozen=True, tag="finishing"):
    """The outcome is settled; the rest of the attempt is being ended."""

    since_s: float
    outcome: str
    code: int
    reason: str
    asked_s: float
    force: bool = False
    finish_s: float = 0.0


class Ended(Struct, frozen=True, tag="ended"):
    outcome: str  # succeeded, failed, stopped
    code: int
    reason: str


AnyPhase = (
    New
    | Placing
    | Waiting
    | Checking
    | Running
    | Diagnosing
    | Isolating
    | Stopping
    | Healing
    | Holding
    | Finishing
    | Ended
)


class State(Struct, frozen=True):
    job: Job = Job()
    phase: AnyPhase = New()


class Choice(Struct, frozen=True, kw_only=True):
    """A rung of the ladder, chosen for an incident.

    `rung`: in-place, hang-restart, replace-worker, reschedule-isolated, reschedule-unconditional,
    wait-for-node, fail or notify.
    """

    incident: int
    rung: str
    why: str
    isolate: tuple[str, ...] = ()
    shadow: bool = False

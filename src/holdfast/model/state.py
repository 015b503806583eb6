"""Defines the state of a job. Only `core.job.decide` returns a new one."""

from msgspec import Struct

from holdfast.model.policy import PolicyFields
from holdfast.model.verdicts import Verdict


class Worker(Struct, frozen=True):
    """A worker of the job. `node`: None while it has no node. `fresh`: it was placed on a node and has not been
    started there yet.

    `to_check`: the suite of checks (quick, full) that its node must pass before the start; empty for none.
    """

    node: str | None = None
    schedule_cnt: int = 0
    proc_start_cnt: int = 0
    fresh: bool = False
    to_check: str = ""


class Device(Struct, frozen=True):
    """A device, such as a GPU, with the error code it reported."""

    node: str
    device: str
    code: str


class DeviceFault(Struct, frozen=True, tag="device"):
    """The fault that a device failed."""

    device: Device
    steps_up: bool  # the device did not heal, or failed too often: the next rung is required
    user_caused: bool = False


class NodeFault(Struct, frozen=True, tag="node"):
    """The fault that a node is lost."""

    node: str
    reason: str


class CheckFault(Struct, frozen=True, tag="check"):
    """The fault that a check found the node, or one of its devices, broken.

    `node`: empty if the run cannot work on any.
    """

    node: str
    reason: str


class HangFault(Struct, frozen=True, tag="hang"):
    """The fault that the attempt hangs."""

    hang: str
    culprits: tuple[int, ...]
    reason: str


class ExitFault(Struct, frozen=True, tag="exit"):
    """The fault that a rank or the launch command ended with an error.

    `rank`: None for the launch command.
    """

    worker: int
    code: int
    rank: int | None = None
    reason: str = ""


class StartFault(Struct, frozen=True, tag="start"):
    """The fault that the command of the attempt could not be started."""

    worker: int
    code: int
    reason: str


AnyFault = DeviceFault | NodeFault | CheckFault | HangFault | ExitFault | StartFault


class Incident(Struct, frozen=True):
    """An incident, from its first fault until training resumes or the job fails."""

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
    """The result of the last boot check. `known`: its failures and warnings, as "CHECK DEVICE"."""

    status: str
    known: tuple[str, ...] = ()


class NodePassed(Struct, frozen=True):
    """A node with a valid pass of its boot check."""

    node: str
    at_s: float


class DeviceSeen(Struct, frozen=True):
    """A device fault with its time, kept to count repeats."""

    device: Device
    at_s: float


class Job(Struct, frozen=True):
    """The part of a job's state that persists over phases."""

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
    problem: str = ""  # key of the problem that led to the last unconditional restart
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
    """Phase: the job is not submitted yet."""


class Placing(Struct, frozen=True, tag="placing"):
    """Phase: workers are being placed on nodes."""

    since_s: float


class Waiting(Struct, frozen=True, tag="waiting"):
    """Phase: no healthy node is available. `asked_s`: when the engine was last asked."""

    since_s: float
    asked_s: float


class Checking(Struct, frozen=True, tag="checking"):
    """Phase: the nodes are checked before the next attempt starts there."""

    since_s: float


class Running(Struct, frozen=True, tag="running"):
    """Phase: the attempt runs.

    `finished`: workers whose command ended with code 0. `handled`: the open incident has its rung, and needs
    no further action (notify, shadow, or a restart without a step so far).
    """

    since_s: float
    finished: tuple[int, ...] = ()
    handled: bool = False


class Diagnosing(Struct, frozen=True, tag="diagnosing"):
    """Phase: the open incident is being diagnosed."""

    since_s: float
    finished: tuple[int, ...] = ()


class Isolating(Struct, frozen=True, tag="isolating"):
    """Phase: nodes are being isolated."""

    since_s: float


class Stopping(Struct, frozen=True, tag="stopping"):
    """Phase: the processes of the attempt are being ended."""

    since_s: float
    asked_s: float


class Healing(Struct, frozen=True, tag="healing"):
    """Phase: devices are being healed."""

    since_s: float


class Holding(Struct, frozen=True, tag="holding"):
    """Phase: the job has failed; its processes are kept for inspection until `until_s`."""

    until_s: float
    code: int
    reason: str


class Finishing(Struct, frozen=True, tag="finishing"):
    """Phase: the outcome is final; the processes of the attempt are being ended."""

    since_s: float
    outcome: str
    code: int
    reason: str
    asked_s: float
    force: bool = False
    finish_s: float = 0.0


class Ended(Struct, frozen=True, tag="ended"):
    """Phase: the job has ended."""

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
    """The whole state of a job: what persists, and the current phase."""

    job: Job = Job()
    phase: AnyPhase = New()


class Choice(Struct, frozen=True, kw_only=True):
    """The action of the recovery ladder (rung) that was chosen for an incident.

    `rung`: in-place, hang-restart, replace-worker, reschedule-isolated, reschedule-unconditional, wait-for-node, fail
    or notify.
    """

    incident: int
    rung: str
    why: str
    isolate: tuple[str, ...] = ()
    shadow: bool = False

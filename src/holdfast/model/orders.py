"""Defines orders, the output of the controller. Their names are imperatives; each order can be repeated safely.

Every order names its attempt or incident, so that a repeated or late one is recognised.
"""

from msgspec import Struct


class Order(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The base class of orders that the controller gives to an engine or agent."""


class PlaceWorkers(Order, frozen=True, tag="place-workers"):
    """Order: place these workers, all or none, on nodes that are free, healthy and not in `without_nodes`.

    Answer: WorkersPlaced or PlacementFailed.
    """

    attempt: int  # the attempt for which they are placed
    workers: tuple[int, ...]
    keep_nodes: tuple[str, ...] = ()  # nodes of the workers that stay
    without_nodes: tuple[str, ...] = ()


class CheckNodes(Order, frozen=True, tag="check-nodes"):
    """Order: check whether these nodes are fit for the attempt that is about to start there.

    Answer: NodesChecked.

    `suite`: quick or full.
    """

    attempt: int
    nodes: tuple[str, ...]
    suite: str = "quick"


class WorkerStart(Struct, frozen=True, kw_only=True):
    """What a worker's start needs: its node and its restart counters."""

    worker: int
    node: str
    schedule_cnt: int  # MA_SCHEDULE_CNT
    proc_start_cnt: int  # MA_PROC_START_CNT


class StartAttempt(Order, frozen=True, tag="start-attempt"):
    """Order: start the command in all workers, with a fresh rendezvous.

    Answer: AttemptStarted or AttemptStartFailed.
    """

    attempt: int
    workers: tuple[WorkerStart, ...]


class StopAttempt(Order, frozen=True, tag="stop-attempt"):
    """Order: end every process of the attempt. Answer: AttemptStopped.

    `finish_s`: first give the command this long to end by itself. `force`: no grace.
    """

    attempt: int
    reason: str
    finish_s: float = 0.0
    force: bool = False


class HealDevice(Order, frozen=True, tag="heal-device"):
    """Order: wait for a device to heal, or reset it. Answer: DeviceHealed."""

    incident: int
    node: str
    device: str
    code: str


class IsolateNode(Order, frozen=True, tag="isolate-node"):
    """Order: exclude the node from further use. Answer: NodeIsolated.

    `only_lost`: nothing else is known against the node than that it was lost; it stays in use if it has returned since.
    """

    incident: int
    node: str
    reason: str
    only_lost: bool = False


class Diagnose(Order, frozen=True, tag="diagnose"):
    """Order: collect evidence of the attempt while it is fresh, and make the verdict.

    Answer: VerdictReached.
    """

    incident: int
    attempt: int
    boot: str = ""  # status of the last boot check: pass, warn, fail, skip; empty: there was none
    known: tuple[str, ...] = ()  # its failures and warnings, as "CHECK DEVICE", which are not new


class TellPeople(Order, frozen=True, tag="tell-people"):
    """Order: send a message to users."""

    incident: int
    text: str


class EndJob(Order, frozen=True, tag="end-job"):
    """Order: end the job. `code`: exit code of `holdfast run`."""

    outcome: str
    code: int
    reason: str


AnyOrder = (
    PlaceWorkers
    | CheckNodes
    | StartAttempt
    | StopAttempt
    | HealDevice
    | IsolateNode
    | Diagnose
    | TellPeople
    | EndJob
)

"""Defines the messages between a job's controller and its agents, and the reports of engines about nodes.

One agent runs on each node of the job, spares included; each start command gives it the number of its worker.
Reports are kept on the node until the controller has them; commands can be repeated safely. Every message is
one MessagePack map with its tag in `kind` (`msgspec.msgpack`), one per frame of the link.
"""

from typing import TypeAlias

from msgspec import Struct

from holdfast.model.events import AnyEvent
from holdfast.model.failures import Failure
from holdfast.model.flight.digests import Digest, RankLife
from holdfast.model.flight.records import Entered
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.model.matches import Search
from holdfast.model.nodes.imports import Command, ImportsReport, Report, TakeImports
from holdfast.model.policy import PolicyFields
from holdfast.model.samples import RankSample, StackTrend, Utilisation
from holdfast.model.settings import RunSettings
from holdfast.model.steps import RankStep

AGENT_ENDS = "agent-ends"  # the kind of the finding for an agent that got a signal to end
LINEAGE = "lineage"  # the fact of a journal that names it, for copies of it
FILE_KEY = "file:"  # before the name of a file, among the facts of a copy
PROTOCOL = 1  # of these values and of the link's frames; the other side's must be the same

CopiedRow: TypeAlias = tuple[float, str, bytes, bytes, str]  # the fields of a row of the journal


class AgentHello(Struct, frozen=True, kw_only=True):
    """The first message of an agent on every connection.

    `address`: address of this node for the other nodes. `instance`: id of this agent process, generated at its start.
    `attempt`, `worker`: what runs here now; 0 and None if nothing runs. `token`: content of the token file in the job's
    folder, by which the controller finds out whether the folder is shared; empty if there is none. `copy_of`,
    `copy_seq`: the journal of which a copy is here, and the number of its last row.
    """

    node: str
    address: str
    instance: str
    version: str
    attempt: int = 0
    worker: int | None = None
    token: str = ""
    copy_of: str = ""
    copy_seq: int = 0


# Reports ------------------------------------------------------------------------------------------------------


class EventReport(Report, frozen=True, tag="told"):
    """An event, as the agent of a single-machine job would report it, for this worker's part of the attempt.

    AttemptStarted: its command runs. AttemptStopped: nothing of it is left on this node.
    """

    event: AnyEvent


class PortFound(Report, frozen=True, tag="port-found"):
    """An agent's answer to the command FindPort: a free port."""

    attempt: int
    port: int


class Sampled(Report, frozen=True, tag="sampled"):
    """Samples of the worker's ranks, once a second. Without space in the spool, the oldest are dropped.

    `log_bytes`: of all its output so far. `step`, `first_step`: the last and first step in its output.
    `node_busy_s`: when disks or links of the node were last busy; None if unknown. `steps`: steps that its
    ranks have logged since the last sample. `throttled_s`: total CPU throttling of each rank, in seconds;
    refreshed every few seconds. `used`: utilisation of devices, sampled occasionally while no rank reads or
    writes.
    """

    attempt: int
    worker: int
    at_s: float
    ranks: tuple[RankSample, ...] = ()
    world_size: int | None = None
    log_bytes: int = 0
    step: int | None = None
    first_step: int | None = None
    node_busy_s: float | None = None
    trends: tuple[StackTrend, ...] = ()
    steps: tuple[RankStep, ...] = ()
    throttled_s: dict[int, float] = {}
    used: tuple[Utilisation, ...] = ()


class RecordsReport(Report, frozen=True, tag="records"):
    """The result of the command FetchRecords: when this worker's ranks entered their last collectives, on the
    node's clock.

    `peers`: by rank, the name of its data-parallel group; empty if the groups' names do not show it. Ranks of one
    group do the same work.
    """

    attempt: int
    worker: int
    entered: tuple[Entered, ...] = ()
    peers: dict[int, str] = {}


class Looked(Report, frozen=True, tag="looked"):
    """The result of the command LookCloser: flight records, stacks and state of this worker's ranks.

    `look` 0: unrequested, part of WorkerEvidence. `usual_bytes`: sizes of collectives while the job was
    healthy.
    """

    attempt: int
    worker: int
    look: int
    digests: tuple[Digest, ...] = ()
    lives: dict[int, RankLife] = {}
    stacks: tuple[RankStacks, ...] = ()
    usual_bytes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


class WorkerEvidence(Report, frozen=True, tag="evidence"):
    """The result of the command FetchEvidence: this worker's evidence on a failing attempt.

    Sent at once, and after each change with the next `revision`. `certain`: later evidence of this worker
    cannot change the verdict. `is_all`: it is complete. `search`: matches in its output and its node's kernel
    log. `offsets`: by log, offsets of matches for excerpts in the evidence bundle.
    """

    incident: int
    attempt: int
    worker: int
    revision: int
    failure: Failure
    certain: bool
    is_all: bool
    search: Search = Search()
    looked: Looked | None = None
    offsets: dict[str, tuple[int, ...]] = {}
    kernel_why_not: str = ""


class StandbyState(Report, frozen=True, tag="standby"):
    """Whether an agent's standby processes have completed their imports; sent at changes and connections."""

    attempt: int
    worker: int
    is_ready: bool


class Shipped(Report, frozen=True, tag="shipped"):
    """A piece of a file of the worker's folder, sent if controller and node share no file system.

    Pieces of one file are sent in order without gaps, except after dropped data, which `offset` then shows.
    """

    attempt: int
    worker: int
    name: str
    offset: int
    data: bytes


class RowsKept(Report, frozen=True, tag="rows-kept"):
    """Answer to KeepRows: the copy has all rows up to `seq`. `is_broken`: the copy cannot be written."""

    lineage: str
    seq: int
    is_broken: bool = False


class RowsSent(Report, frozen=True, tag="rows-sent"):
    """Answer to SendRows, in pieces: the next rows. `meta`: metadata of the journal, in the first piece."""

    lineage: str
    rows: tuple[CopiedRow, ...]
    meta: dict[str, bytes] = {}
    is_last: bool = False


AnyReport = (
    RowsKept
    | RowsSent
    | EventReport
    | PortFound
    | Sampled
    | RecordsReport
    | Looked
    | WorkerEvidence
    | StandbyState
    | Shipped
    | ImportsReport
)


# Commands -----------------------------------------------------------------------------------------------------


class SetUp(Command, frozen=True, tag="set-up"):
    """Command, the first on every connection: the description of the job. `folder`: the job's, if shared."""

    job: str
    folder: str
    cwd: str
    settings: RunSettings
    token: str


class FindPort(Command, frozen=True, tag="find-port"):
    """Command: find a free port for the rendezvous of this attempt. `besides`: a port to exclude."""

    attempt: int
    besides: int = 0


class StartWorker(Command, frozen=True, tag="start-worker"):
    """Command: start the command as this worker of the attempt.

    Answer: EventReport(AttemptStarted), or AttemptStartFailed.

    `run_id`: id of this attempt's rendezvous, never used before, so that no process of an older one can join
    it.
    """

    attempt: int
    worker: int
    workers: int
    schedule_cnt: int
    proc_start_cnt: int
    master_address: str
    master_port: int
    run_id: str


class PrepareStandby(Command, frozen=True, tag="prepare-standby"):
    """Command: prepare the processes of a future attempt; its rendezvous address comes with its start."""

    attempt: int
    worker: int
    workers: int


class StopWorker(Command, frozen=True, tag="stop-worker"):
    """Command: end every process of this attempt, and of earlier ones, on this node.

    Answer: EventReport(AttemptStopped).

    `finish_s`, `force`: as in StopAttempt.
    """

    attempt: int
    reason: str
    finish_s: float = 0.0
    force: bool = False


class CheckNode(Command, frozen=True, tag="check-node"):
    """Command: check this node. `suite`: quick or full. Answer: EventReport(NodesChecked), for this node only."""

    attempt: int
    suite: str = "quick"


class FetchEvidence(Command, frozen=True, tag="tell-evidence"):
    """Command: collect evidence on a failing attempt while it is fresh.

    Answer: WorkerEvidence, repeatedly.

    `boot`, `known`: as in Diagnose. `is_all` must be sent within `until_s` seconds.
    """

    incident: int
    attempt: int
    until_s: float
    boot: str = ""
    known: tuple[str, ...] = ()


class LookCloser(Command, frozen=True, tag="look-closer"):
    """Command: collect flight records and stacks of the ranks here, because the job seems to
    hang. Answer: Looked.

    `look`: the request's number. `stalled_s`: time without progress.
    """

    attempt: int
    look: int
    stalled_s: float


class SampleStacks(Command, frozen=True, tag="sample-stacks"):
    """Command: set the ranks whose stacks the agent samples repeatedly."""

    attempt: int
    ranks: tuple[int, ...] = ()


class FetchRecords(Command, frozen=True, tag="fetch-records"):
    """Command: report when ranks on its node entered their last collectives. Answer: RecordsReport.

    `most`: maximum number of collectives for each rank.
    """

    attempt: int
    most: int


class PassSignal(Command, frozen=True, tag="pass-signal"):
    """Command: send a signal to the training command of the attempt, such as SIGUSR1 for a checkpoint."""

    attempt: int
    number: int


class Leave(Command, frozen=True, tag="leave"):
    """Command: end all processes here, then the agent with this exit code, because the job or this node's part in it has
    ended.
    """

    code: int
    reason: str


class KeepRows(Command, frozen=True, tag="keep-rows"):
    """Command: keep a copy of these rows of the job's journal, which follow row `after`.

    Answer: RowsKept. `meta`: metadata of the journal.
    """

    lineage: str
    after: int
    rows: tuple[CopiedRow, ...]
    meta: dict[str, bytes] = {}


class SendRows(Command, frozen=True, tag="send-rows"):
    """Command: send the copy of the journal, because the controller has lost its own. Answer: RowsSent."""


AnyCommand = (
    SetUp
    | KeepRows
    | SendRows
    | FindPort
    | StartWorker
    | PrepareStandby
    | TakeImports
    | StopWorker
    | CheckNode
    | FetchEvidence
    | LookCloser
    | SampleStacks
    | FetchRecords
    | PassSignal
    | Leave
)


# News of an engine ----------------------------------------------------------------------------------------------


class News(Struct, frozen=True, kw_only=True):
    """An engine's report about nodes, spontaneous or in answer to a query."""


class NodeReady(News, frozen=True):
    """An engine's report: the node belongs to the job, and its agent is being started."""

    node: str


class NodeDown(News, frozen=True):
    """An engine's report: the node does not exist any more or is unusable, according to the scheduler or the
    machine.

    `with_job`: the job loses all its nodes; this node has no fault.
    """

    node: str
    reason: str
    with_job: bool = False


class NodeAlive(News, frozen=True):
    """An engine's answer to a query: the scheduler or machine reports the node as up; the agent on it may not run."""

    node: str


class AgentEnded(News, frozen=True):
    """An engine's report: the agent's process has ended; the node may be healthy. `code`: -N for signal N."""

    node: str
    code: int


class AgentLeaves(News, frozen=True):
    """An engine's report: the node's agent is to end with this exit code, by which its scheduler starts it anew."""

    node: str
    code: int
    reason: str


class SetAside(News, frozen=True):
    """An engine's answer to `isolate`: no worker of this job is placed on the node, nor of others if the
    engine can exclude it.
    """

    node: str
    says: str = ""


class EndAsked(News, frozen=True):
    """An engine's report: the scheduler requires the job to end: a time limit, a preemption, a cancellation.

    `comes_back`: the scheduler will restart the job, and its journal continues. `for_others`: other jobs may
    use the nodes meanwhile. `leave_code`: exit code of the agents, if it comes back.
    """

    reason: str
    code: int
    finish_s: float
    comes_back: bool = False
    for_others: bool = False
    leave_code: int = 0


class JobGoesOn(News, frozen=True):
    """An engine's report: the scheduler no longer requires the job to end."""


class EngineNote(News, frozen=True):
    """A note for the log from the interface to the scheduler: it does not answer, or a permission is missing."""

    text: str


class DevicesSick(News, frozen=True):
    """An engine's report: all devices of a node that the cluster reports as faulty now, with their codes."""

    node: str
    devices: dict[str, str]


class NotRemade(News, frozen=True):
    """An engine's report: the job's nodes cannot be created again; its workers are placed on the existing
    ones.
    """

    reason: str


class PolicyAsked(News, frozen=True):
    """An engine's report: policy settings that the job's platform requests now.

    `refused`: settings with invalid values, which stay as they are. `text`: the request in words, for the
    log.
    """

    fields: PolicyFields
    refused: tuple[str, ...] = ()
    text: str = ""
    by: str = ""


class NoMoreNodes(News, frozen=True):
    """An engine's answer to `more_nodes`: no further nodes will come."""

    reason: str


AnyNews = (
    NodeReady
    | NodeDown
    | NodeAlive
    | AgentEnded
    | SetAside
    | EndAsked
    | JobGoesOn
    | EngineNote
    | DevicesSick
    | NotRemade
    | AgentLeaves
    | PolicyAsked
    | NoMoreNodes
)

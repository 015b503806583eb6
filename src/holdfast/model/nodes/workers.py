"""What passes between a job's controller and the agents on its nodes, and what an engine says of nodes.

One agent runs on each node of the job, spares included; which worker it is, if any, it learns with each start.
Reports go up and are kept on the node until the controller has them; commands go down, and each does no harm when it
comes twice. Every value is one MessagePack map with its tag in `kind` (`msgspec.msgpack`), one to a frame of the link.
"""

from msgspec import Struct

from holdfast.model.events import AnyEvent
from holdfast.model.failures import Failure
from holdfast.model.flight.digests import Digest, RankLife
from holdfast.model.flight.records import Entered
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.model.matches import Search
from holdfast.model.samples import RankSample, StackTrend, Utilisation
from holdfast.model.settings import RunSettings
from holdfast.model.steps import RankStep

AGENT_ENDS = "agent-ends"  # the kind of the finding that says that an agent was told to end by a signal
PROTOCOL = 1  # of these values and of the link's frames; the other side's must be the same


class AgentHello(Struct, frozen=True, kw_only=True):
    """How an agent introduces itself, at every connection.

    `address`: where the other nodes reach this one. `instance`: of this agent's process, made up at its start.
    `attempt`, `worker`: what runs here now, whoever started it; 0 and None: nothing. `token`: what it read in the job's
    folder, which tells the controller whether both see the same one; empty: there is none. `free_port`: a TCP port
    that nobody listens on here.
    """

    node: str
    address: str
    instance: str
    version: str
    attempt: int = 0
    worker: int | None = None
    token: str = ""
    free_port: int = 0


# Reports ------------------------------------------------------------------------------------------------------


class Report(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """From an agent. Times are the node's clock; the controller sets them to the job's."""


class Told(Report, frozen=True, tag="told"):
    """An event, as the agent of one machine would have told it: of this worker's part of the attempt alone.

    AttemptStarted: its command runs. AttemptStopped: nothing of it is left on this node.
    """

    event: AnyEvent


class PortFound(Report, frozen=True, tag="port-found"):
    """The answer to FindPort."""

    attempt: int
    port: int


class Sampled(Report, frozen=True, tag="sampled"):
    """One look at the worker's ranks, once a second. May be dropped where there is no room, the oldest first.

    `log_bytes`: of all its output so far. `step`, `first_step`: the last and the first that its output named.
    `node_busy_s`: when disks or links of the node last carried much; None: not known. `steps`: what its ranks have logged
    of theirs since the last look. `throttled_s`: for how long control groups have held each rank back so far, seconds;
    looked up every few seconds. `used`: of its devices, now and then while no rank reads or writes.
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


class RecordsTold(Report, frozen=True, tag="records"):
    """The answer to FetchRecords: when this worker's ranks entered their last collectives, by the node's clock.

    `peers`: by rank the part of the model that it has, where its groups tell.
    """

    attempt: int
    worker: int
    entered: tuple[Entered, ...] = ()
    peers: dict[int, str] = {}


class Looked(Report, frozen=True, tag="looked"):
    """The answer to LookCloser: flight records, stacks and lives of this worker's ranks, and its usual sizes.

    `look` 0: not asked for, part of WorkerEvidence.
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
    """The answer to TellEvidence: what this worker knows of why the attempt is in trouble.

    Sent at once, and again whenever it has changed, with the next `revision`. `certain`: nothing that could still
    come from here would change it. `is_all`: nothing more will come. `search`: what signatures saw in its output and in
    its node's kernel log. `offsets`: by log, where something was seen, for the excerpts of the evidence bundle.
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
    """Whether the processes asked for by PrepareStandby have made all their imports. Told when that changes, and at each
    connection."""

    attempt: int
    worker: int
    is_ready: bool


class Shipped(Report, frozen=True, tag="shipped"):
    """A piece of a file of the worker's folder, where controller and node do not share the job's folder.

    Pieces of one file come in order, without gaps, but for what was dropped for want of room: then `offset` tells.
    """

    attempt: int
    worker: int
    name: str
    offset: int
    data: bytes


AnyReport = Told | PortFound | Sampled | RecordsTold | Looked | WorkerEvidence | StandbyState | Shipped


# Commands -----------------------------------------------------------------------------------------------------


class Command(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """To an agent. Each names its attempt or incident; one of an attempt that is over is passed over."""


class SetUp(Command, frozen=True, tag="set-up"):
    """The first command of all, at every connection: what job this is. `folder`: the job's, where it is shared."""

    job: str
    folder: str
    cwd: str
    settings: RunSettings
    token: str


class FindPort(Command, frozen=True, tag="find-port"):
    """A port for the master of this attempt. `besides`: not that one."""

    attempt: int
    besides: int = 0


class StartWorker(Command, frozen=True, tag="start-worker"):
    """Start the command as this worker of the attempt. Answer: Told(AttemptStarted), or AttemptStartFailed.

    `run_id`: of this attempt's rendezvous, never used before, so that nothing left of an older one can join it.
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
    """Keep the processes of an attempt that may come ready, as this worker; where it meets comes with its start."""

    attempt: int
    worker: int
    workers: int


class StopWorker(Command, frozen=True, tag="stop-worker"):
    """End every process of this attempt, and of all before it, on this node. Answer: Told(AttemptStopped).

    `finish_s`, `force`: as in StopAttempt.
    """

    attempt: int
    reason: str
    finish_s: float = 0.0
    force: bool = False


class CheckNode(Command, frozen=True, tag="check-node"):
    """See whether this node is fit. `suite`: quick or full. Answer: Told(NodesChecked), of this node alone."""

    attempt: int
    suite: str = "quick"


class TellEvidence(Command, frozen=True, tag="tell-evidence"):
    """The attempt is in trouble: say what is known here, while it is fresh. Answer: WorkerEvidence, again and again.

    `boot`, `known`: as in Diagnose. `until_s` long after it came, `is_all` must be said.
    """

    incident: int
    attempt: int
    until_s: float
    boot: str = ""
    known: tuple[str, ...] = ()


class LookCloser(Command, frozen=True, tag="look-closer"):
    """The job seems to hang: read flight records and stacks of the ranks here. Answer: Looked.

    `look`: its number. `stalled_s`: for how long nothing has moved.
    """

    attempt: int
    look: int
    stalled_s: float


class SampleStacks(Command, frozen=True, tag="sample-stacks"):
    """From now on these ranks' stacks are worth sampling again and again; others' no longer."""

    attempt: int
    ranks: tuple[int, ...] = ()


class FetchRecords(Command, frozen=True, tag="fetch-records"):
    """Ask the ranks here when they entered their last collectives. Answer: RecordsTold. `most`: of each rank."""

    attempt: int
    most: int


class PassSignal(Command, frozen=True, tag="pass-signal"):
    """For the command of the attempt, such as SIGUSR1 for a checkpoint."""

    attempt: int
    number: int


class Leave(Command, frozen=True, tag="leave"):
    """The job is over, or this node is no longer of it: end what runs here, and then yourself, with this code."""

    code: int
    reason: str


AnyCommand = (
    SetUp
    | FindPort
    | StartWorker
    | PrepareStandby
    | StopWorker
    | CheckNode
    | TellEvidence
    | LookCloser
    | SampleStacks
    | FetchRecords
    | PassSignal
    | Leave
)


# News of an engine ----------------------------------------------------------------------------------------------


class News(Struct, frozen=True, kw_only=True):
    """What an engine knows of nodes, by itself or because it was asked."""


class NodeReady(News, frozen=True):
    """The node belongs to the job, and an agent is being started there, or is to be expected."""

    node: str


class NodeDown(News, frozen=True):
    """The node is gone or unusable, by what the scheduler or the machine says: surely, not by its silence.

    `with_job`: it is taken away as all of the job's, and no fault of its own.
    """

    node: str
    reason: str
    with_job: bool = False


class NodeAlive(News, frozen=True):
    """The answer to a question: the scheduler, or the machine, says that the node is up. Its agent may not be."""

    node: str


class AgentEnded(News, frozen=True):
    """The agent's process there has ended; the node may be well. `code`: -N when killed by signal N."""

    node: str
    code: int


class SetAside(News, frozen=True):
    """The answer to `isolate`: nothing of this job, nor, where the engine may say so, of any other, is placed there."""

    node: str
    says: str = ""


class EndAsked(News, frozen=True):
    """The scheduler wants the job to end: a time limit, a preemption, a cancel. `finish_s`: it leaves this long.

    `comes_back`: it will start the job again by itself, and the record is to be gone on with. `for_others`: somebody else
    may have the nodes meanwhile.
    """

    reason: str
    code: int
    finish_s: float
    comes_back: bool = False
    for_others: bool = False


class JobGoesOn(News, frozen=True):
    """The scheduler does not want the job to end, as far as it says."""


class EngineNote(News, frozen=True):
    """Something for the log: a scheduler that does not answer, a right that is missing."""

    text: str


class NoMoreNodes(News, frozen=True):
    """The answer to `more_nodes`: none will come."""

    reason: str


AnyNews = (
    NodeReady | NodeDown | NodeAlive | AgentEnded | SetAside | EndAsked | JobGoesOn | EngineNote | NoMoreNodes
)

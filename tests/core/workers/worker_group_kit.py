"""A worker_group under a real core, over nodes that are played here: each has an agent, orders on their way, and what runs there."""

from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job.decide import decide
from holdfast.core.workers.acts import (
    Act,
    AskEngine,
    Drop,
    Forget,
    MoreNodes,
    Say,
    Send,
    SetNodeAside,
    StartAgent,
    Tell,
)
from holdfast.core.workers.group import WorkerGroup
from holdfast.core.workers.memory import Memory
from holdfast.core.workers.roster import Settings
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    ControllerResumed,
    JobSubmitted,
    NodesChecked,
    StepReached,
    Tick,
    VerdictReached,
    WorkerExited,
    WorkersPlaced,
)
from holdfast.model.nodes.workers import (
    AgentEnded,
    AgentHello,
    AnyCommand,
    CheckNode,
    FindPort,
    Leave,
    NodeAlive,
    NodeDown,
    NodeReady,
    NoMoreNodes,
    PortFound,
    PrepareStandby,
    SetAside,
    StandbyState,
    StartWorker,
    StopWorker,
)
from holdfast.model.orders import AnyOrder, Diagnose, EndJob, TellPeople
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.verdicts import UNKNOWN

VERSION = "1.0"
DEFAULTS = Settings()
POLICY = Policy(max_restarts=100, unconditional_restart=True, same_problem_in_a_row_max=100)
NO_CHECKS = Settings(checks=False)


class Place(Struct):
    """A node as it really is. `orders`: given and not carried out; `done`: ids that were. `reports`: not taken in yet."""

    name: str
    is_up: bool = True
    has_link: bool = True
    has_agent: bool = False
    joined: bool = False  # as the controller's end of the link sees it
    instance: int = 0
    attempt: int = 0
    worker: int | None = None
    orders: dict[str, AnyCommand] = {}
    done: set[str] = set()
    reports: deque[AnyEvent | PortFound | StandbyState] = deque()
    fit: bool = True
    standby: StandbyState | None = None


class World:
    """`policy`: of the job. Everything is done by the rules of the test; nothing happens by itself."""

    def __init__(self, nodes: int, workers: int, policy: Policy, settings: Settings = DEFAULTS) -> None:
        self.policy, self.settings = policy, settings
        self.at_s = 1000.0
        self.state = State()
        self.memory = Memory()
        self.places = {f"n{number}": Place(name=f"n{number}") for number in range(nodes)}
        self.workers = workers
        self.worker_group = self._new_group()
        self.events: list[AnyEvent] = []
        self.ended: EndJob | None = None
        self.starts: list[tuple[str, StartWorker]] = []
        self.standbys: list[tuple[str, PrepareStandby]] = []
        self.said: list[tuple[str, AnyCommand]] = []
        self.dropped: list[str] = []
        self.more_for: list[int] = []  # so many workers more nodes were asked for
        self._inbox: deque[AnyEvent] = deque()
        self._busy = False

    def _new_group(self) -> WorkerGroup:
        return WorkerGroup("job", self.places, self.settings, VERSION, "abc", self.memory)

    # The controller -----------------------------------------------------------------------------------------

    def submit(self) -> None:
        self.handle(JobSubmitted(at_s=self.at_s, job="job", workers=self.workers))

    def handle(self, event: AnyEvent) -> None:
        self._inbox.append(event)
        if self._busy:
            return
        self._busy = True
        while self._inbox:
            event = self._inbox.popleft()
            decision = decide(self.state, event, self.policy)
            self.state = decision.state
            self.events.append(event)
            self.memory.hear(event)
            self._look_at(event)
            for order in decision.orders:
                self._order(order)
        self._busy = False

    def _order(self, order: AnyOrder) -> None:
        match order:
            case Diagnose():
                verdict = replace(UNKNOWN, category="process_killed", confidence=0.9)
                self.handle(
                    VerdictReached(at_s=self.at_s, incident=order.incident, verdict=verdict, environment=True)
                )
            case EndJob():
                self.ended = order
            case TellPeople():
                pass
            case _:
                self.do(self.worker_group.order(order, self.at_s))

    def _look_at(self, event: AnyEvent) -> None:
        if not isinstance(event, WorkersPlaced):
            return
        nodes = [placed.node for placed in event.placed]
        assert len(set(nodes)) == len(nodes), "two workers on one node"
        for name in nodes:
            assert name not in self.worker_group.shunned, "a shunned node was used"
            assert name not in self.state.job.lost, "a lost node was used"
            assert name not in self.state.job.isolated, "an isolated node was used"
        where = [worker.node for worker in self.state.job.workers if worker.node is not None]
        assert len(set(where)) == len(where), "two workers on one node"

    def do(self, acts: list[Act]) -> None:
        for act in acts:
            match act:
                case Tell(event=event):
                    self.handle(event)
                case Send():
                    self._send(act)
                case Say(node=node, command=command):
                    self.said.append((node, command))
                case Forget(node=node, prefix=prefix):
                    place = self.places.get(node, Place(name=node))
                    place.orders = {id: one for id, one in place.orders.items() if not id.startswith(prefix)}
                case Drop(node=node):
                    self.dropped.append(node)
                    self.places[node].joined = False
                case AskEngine() | StartAgent() | SetNodeAside() | MoreNodes():
                    self._ask_engine(act)

    def _send(self, act: Send) -> None:
        if isinstance(act.command, StartWorker):
            self._may_start(act.node, act.command)
        place = self.places[act.node]
        if act.order_id not in place.done:
            place.orders.setdefault(act.order_id, act.command)

    def _ask_engine(self, act: AskEngine | StartAgent | SetNodeAside | MoreNodes) -> None:
        match act:
            case AskEngine(node=node):
                news = NodeAlive(node=node) if self.places[node].is_up else NodeDown(node=node, reason="")
                self.do(self.worker_group.news(news, self.at_s))
            case StartAgent(node=node):
                self.start_agent(node)
            case SetNodeAside(node=node):
                self.do(self.worker_group.news(SetAside(node=node), self.at_s))
            case MoreNodes(workers=workers):
                self.more_for.append(workers)
                self.do(self.worker_group.news(NoMoreNodes(reason="no more nodes"), self.at_s))

    def _may_start(self, node: str, start: StartWorker) -> None:
        """Nobody starts while something of an attempt before is left where it can be seen."""
        self.starts.append((node, start))
        for name, place in self.places.items():
            if not self.worker_group.roster[name].lost:
                assert place.attempt in (0, start.attempt), f"{name} still runs attempt {place.attempt}"

    def resume(self) -> None:
        """The controller dies and comes back; the link and its orders with it."""
        for place in self.places.values():
            place.joined, place.orders = False, {}
        self.worker_group = self._new_group()
        acts = self.worker_group.resume(self.state.job, self.at_s)
        self.handle(ControllerResumed(at_s=self.at_s))
        self.do(acts)

    # The world ----------------------------------------------------------------------------------------------

    def tick(self, for_s: float = 1.0) -> None:
        self.at_s += for_s
        self.handle(Tick(at_s=self.at_s))
        self.do(self.worker_group.tick(self.at_s))

    def start_agent(self, name: str) -> None:
        place = self.places[name]
        if place.is_up and not place.has_agent:
            place.has_agent, place.instance = True, place.instance + 1

    def join(self, name: str) -> None:
        place = self.places[name]
        if not (place.is_up and place.has_agent and place.has_link) or place.joined:
            return
        place.joined = True
        if place.standby is not None:
            place.reports.append(place.standby)
        self.do(self.worker_group.joined(self.hello(name), "10.0.0.1", self.at_s))

    def hello(self, name: str) -> AgentHello:
        place = self.places[name]
        return AgentHello(
            node=name,
            address=f"10.0.0.{name[1:]}",
            instance=f"{name}-{place.instance}",
            version=VERSION,
            attempt=place.attempt,
            worker=place.worker,
        )

    def cut(self, name: str) -> None:
        """The link breaks; what runs there goes on."""
        place = self.places[name]
        place.has_link = False
        self.leave(name)

    def mend(self, name: str) -> None:
        self.places[name].has_link = True

    def leave(self, name: str) -> None:
        place = self.places[name]
        if place.joined:
            place.joined = False
            self.do(self.worker_group.left(name, self.at_s))

    def kill_agent(self, name: str) -> None:
        """What it started lives on."""
        place = self.places[name]
        if place.has_agent:
            place.has_agent, place.standby = False, None
            self.leave(name)
            self.do(self.worker_group.news(AgentEnded(node=name, code=-9), self.at_s))

    def crash(self, name: str) -> None:
        place = self.places[name]
        place.is_up = place.has_agent = False
        place.standby = None
        place.attempt, place.worker = 0, None
        place.reports.clear()
        place.done.clear()
        self.leave(name)

    def boot(self, name: str) -> None:
        place = self.places[name]
        if not place.is_up:
            place.is_up = True
            self.do(self.worker_group.news(NodeReady(node=name), self.at_s))
            self.start_agent(name)

    def carry_out(self, name: str) -> None:
        """The agent takes the next order, if one has come."""
        place = self.places[name]
        if not (place.joined and place.orders):
            return
        order_id = next(iter(place.orders))
        command = place.orders.pop(order_id)
        place.done.add(order_id)
        match command:
            case FindPort():
                port = 20000 + command.attempt
                port += 1000 if port == command.besides else 0
                place.reports.append(PortFound(attempt=command.attempt, port=port))
            case StartWorker():
                if place.attempt < command.attempt:
                    place.attempt, place.worker = command.attempt, command.worker
                if place.attempt == command.attempt:
                    place.reports.append(AttemptStarted(at_s=0.0, attempt=command.attempt))
            case StopWorker():
                if place.attempt <= command.attempt:
                    place.attempt, place.worker = 0, None
                place.reports.append(AttemptStopped(at_s=0.0, attempt=command.attempt))
            case CheckNode():
                broken = {} if place.fit else {name: "a broken device"}
                place.reports.append(
                    NodesChecked(
                        at_s=0.0,
                        attempt=command.attempt,
                        nodes=(name,),
                        status="pass" if place.fit else "fail",
                        isolate=broken,
                        passed=1,
                    )
                )
            case PrepareStandby():
                self.standbys.append((name, command))
                place.standby = StandbyState(attempt=command.attempt, worker=command.worker, is_ready=True)
                place.reports.append(place.standby)
            case Leave():
                place.has_agent = False
                self.leave(name)
            case _:
                raise AssertionError(command)

    def report(self, name: str) -> None:
        """The controller takes in the next report."""
        place = self.places[name]
        if not (place.joined and place.reports):
            return
        report = place.reports.popleft()
        if isinstance(report, StandbyState):
            self.do(self.worker_group.stands_by(name, report, self.at_s))
        elif isinstance(report, PortFound):
            self.do(self.worker_group.port_found(name, report, self.at_s))
        else:
            self.do(self.worker_group.on_report(name, replace(report, at_s=self.at_s), self.at_s))

    def settle(self, most: int = 200) -> None:
        """All orders and reports on their way arrive."""
        for _ in range(most):
            for name in self.places:
                self.join(name)
                self.carry_out(name)
                self.report(name)
            if not any(place.joined and (place.orders or place.reports) for place in self.places.values()):
                return

    def begin(self) -> None:
        """All agents come, and attempt 1 runs."""
        self.submit()
        for name in self.places:
            self.start_agent(name)
        self.settle()

    # What is to be seen -------------------------------------------------------------------------------------

    @property
    def running(self) -> dict[str, tuple[int, int | None]]:
        return {name: (place.attempt, place.worker) for name, place in self.places.items() if place.attempt}

    def told(self, kind: type) -> list[AnyEvent]:
        return [event for event in self.events if isinstance(event, kind)]


def world(nodes: int = 3, workers: int = 2, **more: object) -> World:
    made = World(nodes, workers, POLICY, replace(Settings(), **more))
    made.begin()
    return made


def exit_of(made: World, worker: int, code: int = 1) -> None:
    """The command of this worker has ended."""
    name = made.worker_group.roster.team.nodes[worker]
    place = made.places[name]
    event = WorkerExited(at_s=made.at_s, attempt=place.attempt, worker=worker, code=code)
    made.do(made.worker_group.on_report(name, event, made.at_s))


def trains(made: World) -> None:
    made.do(made.worker_group.on_report("n0", StepReached(at_s=made.at_s, attempt=1, step=1), made.at_s))
    made.tick()
    made.settle()

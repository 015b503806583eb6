"""A controller of many nodes with its real link, journal and core; agents that are real links, played by the test.

The engine of nodes is played, too. Time is turned by hand; the loopback takes its own.
"""

import select
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.controller.conclusion import Case, Concluding
from holdfast.controller.hang_watch import HangWatching
from holdfast.controller.loop import Controller, decisions
from holdfast.controller.parts import Parts
from holdfast.controller.shipped import ShippedFiles
from holdfast.controller.straggler_watch import StragglersWatching
from holdfast.controller.worker_group import WorkerGroupEngine
from holdfast.core.workers.group import WorkerGroup
from holdfast.core.workers.memory import Memory
from holdfast.core.workers.roster import Settings
from holdfast.journal.recorder import Recorder
from holdfast.journal.store import open_reader
from holdfast.link.agent_link import AgentLink
from holdfast.link.heard import Ordered, Said
from holdfast.link.hub import Hub
from holdfast.link.spool import Spool
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    JobMoved,
    JobSubmitted,
    NodesChecked,
    RankStarted,
    Tick,
)
from holdfast.model.failures import Failure
from holdfast.model.nodes.workers import (
    AgentHello,
    AnyCommand,
    AnyNews,
    AnyReport,
    CheckNode,
    EventReport,
    FetchEvidence,
    FindPort,
    Leave,
    LookCloser,
    PortFound,
    SetUp,
    StartWorker,
    StopWorker,
    WorkerEvidence,
)
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings
from holdfast.model.state import State

SECRET = bytes(range(32))
VERSION = "1.0"
TURNS_MAX = 3000
POLICY = Policy(max_restarts=50, unconditional_restart=True, same_problem_in_a_row_max=50, boot_check="off")
_COMMANDS = msgspec.msgpack.Decoder(AnyCommand)
_SET_UP = msgspec.msgpack.Decoder(SetUp)


class HandClock:
    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


class PlayedNodes:
    """An engine whose nodes do as the test says."""

    def __init__(self, nodes: tuple[str, ...]) -> None:
        self.nodes = nodes
        self.asked: list[str] = []
        self.again: list[str] = []
        self.news: list[AnyNews] = []
        self.remakes = False
        self.remade: list[int] = []  # attempts

    def turn(self) -> list[AnyNews]:
        news, self.news = self.news, []
        return news

    def channels(self) -> list[int]:
        return []

    def agent_again(self, node: str) -> None:
        self.again.append(node)

    def ask(self, node: str) -> None:
        self.asked.append(node)

    def isolate(self, node: str, reason: str) -> None: ...

    def joined(self, node: str) -> None: ...

    def lost(self, node: str, reason: str) -> None: ...

    def returned(self, node: str) -> None: ...

    def remake(self, attempt: int) -> bool:
        self.remade.append(attempt)
        return self.remakes

    def more_nodes(self, workers: int, without: object) -> None: ...


class NoCalls:
    def hear(self, peer: str, body: bytes) -> bool:
        return False

    def left(self, peer: str) -> None: ...

    def turn(self) -> None: ...


class PlayedAgent:
    """Does what it is told at once. `ahead_s`: of its clock. `failure`: what it tells when it is asked for evidence."""

    def __init__(
        self, bench: "WorkerGroupBench", name: str, ahead_s: float = 0.0, version: str = VERSION
    ) -> None:
        self.bench, self.name, self.version = bench, name, version
        self.clock = lambda: bench.clock() + ahead_s
        self.attempt, self.worker = 0, None
        self.commands: list[AnyCommand] = []
        self.failure = Failure()
        self.is_all = True
        self.looked: Callable[[LookCloser], AnyReport] | None = None
        self.spool = Spool(bench.path / f"spool-{name}", self.clock)
        self.link = AgentLink(
            name=name,
            role="agent",
            secret=SECRET,
            where=lambda: bench.hub.addresses,
            hello=self._hello,
            spool=self.spool,
            clock=self.clock,
            dice=lambda: 0.5,
        )

    def _hello(self) -> bytes:
        hello = AgentHello(
            node=self.name,
            address="127.0.0.1",
            instance="i-" + self.name,
            version=self.version,
            attempt=self.attempt,
            worker=self.worker,
        )
        return msgspec.msgpack.encode(hello)

    def send(self, report: AnyReport) -> None:
        self.link.send(msgspec.msgpack.encode(report))

    def tell(self, kind: type[AnyEvent], **fields: object) -> None:
        self.send(EventReport(event=kind(at_s=self.clock(), **fields)))

    def turn(self) -> None:
        for heard in self.link.turn():
            if isinstance(heard, Ordered):
                self._carry_out(_COMMANDS.decode(heard.body))
                self.link.done(heard.id)
            elif isinstance(heard, Said):
                self.commands.append(_COMMANDS.decode(heard.body))

    def _carry_out(self, command: AnyCommand) -> None:
        self.commands.append(command)
        match command:
            case FindPort():
                self.send(PortFound(attempt=command.attempt, port=29400))
            case StartWorker():
                self.attempt, self.worker = command.attempt, command.worker
                self.tell(AttemptStarted, attempt=command.attempt)
                for rank in (2 * command.worker, 2 * command.worker + 1):
                    self.tell(
                        RankStarted, attempt=command.attempt, worker=command.worker, rank=rank, pid=100 + rank
                    )
            case StopWorker():
                self.attempt, self.worker = 0, None
                self.tell(AttemptStopped, attempt=command.attempt)
            case CheckNode():
                self.tell(NodesChecked, attempt=command.attempt, nodes=(self.name,), status="pass", passed=1)
            case FetchEvidence():
                self.send(self._evidence(command))
            case LookCloser() if self.looked is not None:
                self.send(self.looked(command))
            case Leave():
                self.link.close(0.0)

    def _evidence(self, command: FetchEvidence) -> WorkerEvidence:
        return WorkerEvidence(
            incident=command.incident,
            attempt=command.attempt,
            worker=self.worker or 0,
            revision=1,
            failure=self.failure,
            certain=False,
            is_all=self.is_all,
        )


class WorkerGroupBench:
    def __init__(self, path: Path, nodes: int, workers: int, policy: Policy = POLICY) -> None:
        self.path, self.policy, self.workers = path, policy, workers
        self.clock = HandClock()
        self.engine = PlayedNodes(tuple(f"n{number}" for number in range(nodes)))
        self.agents: dict[str, PlayedAgent] = {}
        self.events: list[AnyEvent] = []
        self.cases: list[Case] = []
        self.said: deque[str] = deque()
        self._open(Memory())

    def _open(self, memory: Memory, state: State | None = None) -> None:
        self.record = Recorder(self.path / "journal.db", self.clock, self.said.append)
        self.hub = Hub(secret=SECRET, listen=[("127.0.0.1", 0)], clock=self.clock, seen=memory.seen)
        self.worker_group = WorkerGroup(
            "job", self.engine.nodes, Settings(checks=False), VERSION, "abc", memory
        )
        run = RunSettings(command=("true",), state_dir=str(self.path))
        self.machine = WorkerGroupEngine(
            self.worker_group,
            self.hub,
            self.engine,
            SetUp(job="job", folder=str(self.path), cwd="/", settings=run, token="t"),
            self._parts,
            self.clock,
            lambda event: self.controller.handle(event),
            lambda: self.record.flush(),
        )
        self.controller = Controller(
            self.policy, self.record, self.machine, lambda event, decision: self._decided(event), state
        )

    def _decided(self, event: AnyEvent) -> None:
        self.machine.decided(event)
        self.events.append(event)

    def _parts(self, machine: WorkerGroupEngine) -> Parts:
        self.hangs = HangWatching(self.worker_group, self.policy, 30.0, self.clock, machine.note)
        conclusion = Concluding(
            self.worker_group,
            self.policy,
            dict,
            lambda: self.hangs.hang,
            lambda: self.hangs.world_size,
            self.cases.append,
            12.0,
        )
        return Parts(
            hangs=self.hangs,
            stragglers=StragglersWatching(self.worker_group, lambda: self.hangs.is_looking),
            conclusion=conclusion,
            calls=NoCalls(),
            files=ShippedFiles(self.path, self.clock),
        )

    def agent(self, name: str, **more: object) -> PlayedAgent:
        agent = self.agents[name] = PlayedAgent(self, name, **more)
        return agent

    def begin(self) -> None:
        self.controller.handle(JobSubmitted(at_s=self.clock(), job="job", workers=self.workers))
        for name in self.engine.nodes:
            if name not in self.agents:
                self.agent(name)
        self.until(lambda: self.told(AttemptStarted))

    def die(self) -> None:
        """The controller's process ends at once, and another takes its journal up."""
        self.hub.close()
        self.record.close()
        self.resume()

    def resume(self) -> None:
        reader = open_reader(self.path / "journal.db")
        rows = list(reader.read_raw())
        reader.close()
        memory, state = Memory(), State()
        for event, decision in decisions(rows, self.policy):
            memory.hear(event)
            state = decision.state
        self._open(memory, state)
        if memory.moved:
            self.controller.handle(JobMoved(at_s=self.clock(), reason="resumed"))
        self.machine.resume(self.controller.state.job)

    def turn(self, step_s: float = 0.0) -> None:
        self.clock.now_s += step_s
        for agent in self.agents.values():
            agent.turn()
        self.machine.turn()
        if step_s >= 1.0:
            self.controller.handle(Tick(at_s=self.clock()))

    def until(self, done: Callable[[], object], step_s: float = 0.0) -> None:
        for _ in range(TURNS_MAX):
            if done():
                return
            ends = [self.hub.fileno(), *(agent.link.fileno() for agent in self.agents.values())]
            select.select(ends, [], [], 0.0 if step_s else 0.002)
            self.turn(step_s)
        raise AssertionError(f"never came; the last events: {self.events[-8:]}")

    def told(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    def journal(self) -> list[AnyEvent]:
        self.record.flush()
        reader = open_reader(self.path / "journal.db")
        rows = list(reader.read_raw())
        reader.close()
        return [event for event, _ in decisions(rows, self.policy)]

    def close(self) -> None:
        for agent in self.agents.values():
            agent.link.close(0.0)
            agent.spool.close()
        self.hub.close()
        self.record.close()

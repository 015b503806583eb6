"""Implements the engine of a multi-node job: connects the controller with the agents of its nodes.

`carry_out` translates orders of `core` into commands for agents and into requests to the scheduler. `turn`
processes messages of agents and of the scheduler. A report is acknowledged only once its outcome is in the
journal; until then its agent keeps it.
"""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.controller.later import Later, is_readable
from holdfast.controller.node_times import NodeTimes
from holdfast.controller.parts import Link, Parts
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
from holdfast.engines.nodes import NodeEngine
from holdfast.link.arrived import Arrived, Entry, Joined, Left, Refused, Said, Silent
from holdfast.link.messages import UNREADABLE
from holdfast.model.events import (
    AnyEvent,
    ControllerResumed,
    FindingNoted,
    NodeIsolated,
    NodeLost,
    NodeReleased,
    NodeReturned,
    StepReached,
)
from holdfast.model.nodes.imports import ImportsReport, TakeImports
from holdfast.model.nodes.workers import (
    AgentHello,
    AgentLeaves,
    AnyNews,
    AnyReport,
    DevicesSick,
    EndAsked,
    EngineNote,
    EventReport,
    JobGoesOn,
    Leave,
    Looked,
    NotRemade,
    PolicyAsked,
    PortFound,
    RecordsReport,
    RowsKept,
    RowsSent,
    Sampled,
    SetUp,
    Shipped,
    StandbyState,
    WorkerEvidence,
)
from holdfast.model.orders import (
    AnyOrder,
    CheckNodes,
    Diagnose,
    EndJob,
    HealDevice,
    IsolateNode,
    PlaceWorkers,
    StartAttempt,
    StopAttempt,
    TellPeople,
)
from holdfast.model.state import Job

AGENT = "agent"
TICK_S = 1.0
SLICE_S = 0.02  # for detectors, in one turn
LATER_S = 0.03  # for samples and logs, in one turn
ALONE_S = 0.07  # this much longer while nothing else arrives
NOTE_AGAIN_S = 60.0  # between repeats of a note about refused peers or unreadable reports
NOTES_MAX = 256  # different notes remembered

_encode = msgspec.msgpack.Encoder().encode
_REPORTS: msgspec.msgpack.Decoder[AnyReport] = msgspec.msgpack.Decoder(AnyReport)
_HELLOS = msgspec.msgpack.Decoder(AgentHello)


class WorkerGroupEngine:
    """The Engine (controller/loop.py) of a multi-node job.

    `emit`: adds an event to the controller's inbox. `flush`: writes the journal, and returns True if all rows
    are written. `last_row`: returns the number of the journal's last row.
    """

    def __init__(
        self,
        worker_group: WorkerGroup,
        link: Link,
        engine: NodeEngine,
        set_up: SetUp,
        parts: Callable[["WorkerGroupEngine"], Parts],
        clock: Callable[[], float],
        emit: Callable[[AnyEvent], None],
        flush: Callable[[], bool],
        last_row: Callable[[], int] = lambda: 0,
    ) -> None:
        self.worker_group = worker_group
        self.link = link
        self.ended: EndJob | None = None
        self.end_asked: EndAsked | None = None
        self.policy_asked: PolicyAsked | None = None
        self._waiting: PlaceWorkers | None = None  # for nodes that are made anew
        # All nodes are, and no attempt has started there; JobMoved has orders before `resume`.
        self._is_anew = worker_group.is_moved
        self.goes_on = False  # the engine's answer that the job goes on
        self.connected: set[str] = set()  # agents
        self.emit = emit
        self._engine = engine
        self._set_up = _encode(set_up)
        self._imports: bytes | None = None  # for nodes without a worker: a TakeImports
        self._clock = clock
        self._flush, self._last_row = flush, last_row
        self._times = NodeTimes(clock, link.offset_s)
        self._heard: dict[str, int] = {}  # by stream: the last entry processed but not acknowledged
        self._written: deque[tuple[int, dict[str, int]]] = deque()  # by the last row: what the journal has
        self._ahead: dict[str, int] = {}  # the same, for entries that overtook others
        self._arrived: deque[Arrived] = deque()
        self._later = Later()
        self._engine_news: deque[AnyNews] = deque()
        self._said_s: dict[str, float] = {}
        self._ticked_s = float("-inf")
        self.parts = parts(self)

    # Orders -----------------------------------------------------------------------------------------------

    def carry_out(self, order: AnyOrder) -> None:
        at_s = self._clock()
        match order:
            case PlaceWorkers():
                self._place(order, at_s)
            case StartAttempt():
                self._is_anew = False
                self._do(self.worker_group.order(order, at_s))
            case CheckNodes() | StopAttempt() | IsolateNode() | HealDevice():
                self._do(self.worker_group.order(order, at_s))
            case Diagnose():
                self._do(self.parts.conclusion.diagnose(order, at_s))
            case TellPeople():
                pass  # the console showed it with the decision; `notify` serves other channels
            case EndJob():
                self.ended = order

    def _place(self, order: PlaceWorkers, at_s: float) -> None:
        """Places the workers of an attempt.

        If the whole job is rescheduled, the engine may recreate all nodes first.
        """
        is_whole = order.attempt > 1 and not order.keep_nodes and not self._is_anew
        if is_whole and self._engine.remake(order.attempt):
            self._waiting = order
            return
        self._waiting = None
        self._heed_others(at_s)
        self._do(self.worker_group.order(order, at_s))

    def resume(self, job: Job) -> None:
        """Continues a job whose state `job` was read from the journal; `core` then repeats the orders in
        progress.
        """
        acts = self.worker_group.resume(job, self._clock())
        self.emit(ControllerResumed(at_s=self._clock()))
        self._do(acts)

    def signal(self, number: int) -> None:
        self._do(self.worker_group.signal(number))

    def leave(self, code: int, reason: str) -> None:
        self._do(self.worker_group.leave(code, reason))

    # The world --------------------------------------------------------------------------------------------

    def channels(self) -> list[int]:
        return [self.link.fileno(), *self._engine.channels()]

    def turn(self) -> None:
        """Processes the messages that have arrived, urgent ones first.

        Never blocks, and returns after a fraction of a second at most.
        """
        self._arrived.extend(self.link.turn())
        while self._arrived:  # after an exception the next turn continues
            arrived = self._arrived.popleft()
            if isinstance(arrived, Entry) and arrived.may_drop:
                self._later.put(arrived)
            else:
                self._one(arrived)
        self._engine_news.extend(self._engine.turn())
        while self._engine_news:
            self._news(self._engine_news.popleft())
        at_s = self._clock()
        self._do(self.parts.conclusion.turn(at_s))
        if at_s - self._ticked_s >= TICK_S:
            self._ticked_s = at_s
            self._tick(at_s)
        self._look_on(at_s)
        self._take_later()
        self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledges the reports of agents whose outcome is in the journal, so that the agents can delete
        them.
        """
        copies = self.parts.copies
        if self._heard and self._flush():
            self._written.append((self._last_row(), self._heard))
            self._heard = {}
        if copies is not None:
            copies.push(self._clock())
        while self._written and (copies is None or copies.covers(self._written[0][0])):
            for stream, seq in self._written.popleft()[1].items():
                self.link.recorded(stream, seq)

    def _look_on(self, at_s: float) -> None:
        """Continues what a tick has started, for at most `SLICE_S` while other work waits."""
        until_s = self._clock() + SLICE_S
        for part in (self.parts.hangs, self.parts.stragglers):
            while part is not None and part.is_busy and not self._is_enough(until_s):
                self._do(part.go_on(at_s))

    def _take_later(self) -> None:
        """Processes low-priority reports for `LATER_S`: all of them, unless the machine is too slow."""
        until_s = self._clock() + LATER_S
        while (entry := self._later.take()) is not None:
            self._entry(entry, self._clock())
            if self._is_enough(until_s) and not self._later.is_full:
                return

    def _is_enough(self, until_s: float) -> bool:
        """Returns True if the time has passed and other work waits."""
        at_s = self._clock()
        return at_s > until_s and (at_s > until_s + ALONE_S or is_readable(self.channels()))

    def _take_of(self, peer: str) -> None:
        """Processes all earlier reports of this agent."""
        while self._later.waits(peer) and (entry := self._later.take(peer)) is not None:
            self._entry(entry, self._clock())

    def _tick(self, at_s: float) -> None:
        for name in self.connected:
            node = self.worker_group.roster.nodes.get(name)
            was_silent = node is not None and node.contact.silent_since_s is not None
            if was_silent and self.link.silent_s(name) < TICK_S:
                self._do(self.worker_group.heard(name, at_s))
        self._do(self.worker_group.tick(at_s))
        self._do(self.parts.hangs.tick(at_s))
        if self.parts.stragglers is not None:
            self._do(self.parts.stragglers.tick(at_s))
        self.parts.calls.turn()

    def _one(self, arrived: Arrived) -> None:
        at_s = self._clock()
        match arrived:
            case Joined(role=role) if role == AGENT:
                self._take_of(arrived.peer)
                self.parts.calls.left(arrived.peer)
                self._joined(arrived, at_s)
            case Entry():
                self._entry(arrived, at_s)
            case Said():
                self.parts.calls.hear(arrived.peer, arrived.body)
            case Left():
                self._take_of(arrived.peer)
                self.parts.calls.left(arrived.peer)
                if self.parts.copies is not None:
                    self.parts.copies.left(arrived.peer)
                if arrived.peer in self.connected:
                    self.connected.discard(arrived.peer)
                    self._do(self.worker_group.left(arrived.peer, at_s))
            case Silent():
                self._do(self.worker_group.silent(arrived.peer, arrived.for_s, at_s))
            case Refused():
                where = f" at {arrived.address}" if arrived.address else ""
                self.note("link-refused", f"a connection{where} was rejected: {arrived.why}", key=arrived.why)
            case Joined():
                pass  # a client: its requests come later

    def _joined(self, joined: Joined, at_s: float) -> None:
        try:
            hello = replace(_HELLOS.decode(joined.hello), node=joined.peer)
        except UNREADABLE as error:
            self.link.drop(joined.peer, "the first message is invalid")
            self.note(
                "agent-refused",
                f"the agent of {joined.peer} was rejected: its first message is invalid: {error}",
            )
            return
        self.connected.add(joined.peer)
        self._engine.joined(joined.peer)
        self.link.say(joined.peer, self._set_up)
        if self._imports is not None and hello.worker is None:
            self.link.say(joined.peer, self._imports)
        if self.parts.copies is not None:
            self.parts.copies.joined(hello)
        self._do(self.worker_group.joined(hello, joined.address, at_s))

    def _entry(self, entry: Entry, at_s: float) -> None:
        """Processes an entry, in its agent's order unless it may overtake."""
        try:
            report = _REPORTS.decode(entry.body)
        except UNREADABLE as error:
            self._note_heard(entry)
            self.note("report-not-read", f"a report of {entry.peer} is invalid: {error}", key=entry.peer)
            return
        if not entry.may_drop and not _overtakes(report):
            self._take_of(entry.peer)
        self._note_heard(entry)
        match report:
            case EventReport():
                event = self._times.of_event(entry.peer, report.event)
                if not self._later.waits(entry.peer):  # else earlier entries would count as processed too
                    event = replace(event, via=f"{entry.stream}/{entry.seq}")
                self._do(self.worker_group.on_report(entry.peer, event, event.at_s))
            case PortFound():
                self._do(self.worker_group.port_found(entry.peer, report, at_s))
            case ImportsReport():
                self._pass_imports(report)
            case StandbyState():
                self._do(self.worker_group.stands_by(entry.peer, report, self._clock()))
            case _:
                self._seen(entry.peer, report)

    def _pass_imports(self, report: ImportsReport) -> None:
        """Tells the nodes without a worker what the ranks import, these and those that join later."""
        self._imports = _encode(TakeImports(content=report.content))
        for peer in sorted(self.connected - set(self.worker_group.roster.team.nodes.values())):
            self.link.say(peer, self._imports)

    def _note_heard(self, entry: Entry) -> None:
        """Marks an entry for acknowledgement, once all earlier ones are processed."""
        stream, seq = entry.stream, entry.seq
        if self._later.waits(entry.peer):
            if not entry.may_drop:
                self._ahead[stream] = seq
                return
        elif stream in self._ahead:
            seq = max(seq, self._ahead.pop(stream))
        self._heard[stream] = max(seq, self._heard.get(stream, 0))

    def _seen(self, peer: str, report: AnyReport) -> None:
        """Passes a report to the part that processes it."""
        match report:
            case Sampled():
                samples = self._times.of_samples(peer, report)
                self.parts.hangs.sampled(peer, samples)
                if self.parts.stragglers is not None:
                    self.parts.stragglers.sampled(peer, samples)
            case RecordsReport():
                records = self._times.of_records(peer, report)
                if self.parts.stragglers is not None and records is not None:
                    self.parts.stragglers.records(peer, records)
            case Looked():
                self.parts.hangs.looked(peer, report)
            case WorkerEvidence():
                self.parts.conclusion.evidence(peer, self._times.of_evidence(peer, report))
            case RowsKept():
                if self.parts.copies is not None:
                    self.parts.copies.kept(peer, report)
            case RowsSent():
                pass  # for a controller before this one, which restored the record
            case Shipped():
                if why := self.parts.files.take(report):
                    self.note("not-shipped", why, key=why)

    def _news(self, news: AnyNews) -> None:
        at_s = self._clock()
        match news:
            case EngineNote(text=text):
                self.note("engine", text, key=text)
            case EndAsked():
                self.end_asked = news
            case DevicesSick():
                self._do(self.worker_group.sick(news, at_s))
            case NotRemade(reason=reason):
                self.note("engine", f"{reason}; the workers restart on the remaining nodes", key=reason)
                if self._waiting is not None:
                    self._is_anew = True
                    self._place(self._waiting, at_s)
            case AgentLeaves(node=node, code=code, reason=reason):
                self._do([Say(node, Leave(code=code, reason=reason))])
            case PolicyAsked():
                self.policy_asked = news
            case JobGoesOn():
                self.goes_on = True
            case _:
                self._do(self.worker_group.news(news, at_s))

    # Acts -------------------------------------------------------------------------------------------------

    def _do(self, acts: Sequence[Act]) -> None:
        """Carries out acts in their order; nothing is sent before the journal has what it is based on."""
        for act in acts:
            match act:
                case Tell(event=event):
                    self._tell_engine(event)
                    self.parts.conclusion.heard(event)
                    self.emit(event)
                    for fault in self.worker_group.after(event, self._clock()):
                        self.emit(fault)
                case Send(node=node, order_id=order_id, command=command):
                    self._write_down()
                    self.link.order(node, order_id, _encode(command))
                case Say(node=node, command=command):
                    self.link.say(node, _encode(command))
                case Forget(node=node, prefix=prefix):
                    self.link.forget_orders(node, prefix)
                case Drop(node=node, why=why):
                    self.connected.discard(node)
                    self.link.drop(node, why)
                case AskEngine(node=node):
                    self._engine.ask(node)
                case StartAgent(node=node):
                    self._engine.agent_again(node)
                case SetNodeAside(node=node, reason=reason):
                    self._set_aside(node, reason)
                case MoreNodes(workers=workers, without=without):
                    self._engine.more_nodes(workers, without)

    def _write_down(self) -> None:
        """Before an order that rests on it."""
        self._flush()
        if self.parts.copies is not None:
            self.parts.copies.push(self._clock(), now=True)

    def _tell_engine(self, event: AnyEvent) -> None:
        match event:
            case NodeLost():
                self._engine.lost(event.node, event.reason)
            case NodeReturned() | NodeReleased():
                self._engine.returned(event.node)

    # Isolation --------------------------------------------------------------------------------------------

    def _heed_others(self, at_s: float) -> None:
        """Updates which nodes users and other jobs have excluded, and reports those that they have
        released.
        """
        shunned = self.parts.shunned()
        for name in sorted(self.worker_group.shunned - shunned):
            node = self.worker_group.roster.nodes.get(name)
            if node is not None and node.isolated:
                node.isolated = False
                self.emit(NodeReleased(at_s=at_s, node=name))
        self.worker_group.shunned = shunned

    def _set_aside(self, node: str, reason: str) -> None:
        """Isolates a node; if too many were isolated recently, it is only avoided if possible."""
        why_not = self.parts.why_not_isolate(node, reason)
        if not why_not:
            self._engine.isolate(node, reason)
            return
        at_s = self._clock()
        self.worker_group.roster[node].isolated = False
        self.emit(NodeIsolated(at_s=at_s, node=node))
        self.note("isolation-limit", f"node {node} was not isolated: {why_not}", key=node)
        self.emit(NodeReleased(at_s=at_s, node=node))

    def decided(self, event: AnyEvent) -> None:
        """Records that `core` has processed an event: later events never get an earlier time."""
        self._times.not_before(event.at_s)

    def note(self, finding: str, text: str, key: str = "") -> None:
        """Writes a note to the log, at most one a minute for the same `key`."""
        at_s = self._clock()
        key = f"{finding}:{key}"
        if at_s - self._said_s.get(key, float("-inf")) < NOTE_AGAIN_S:
            return
        if len(self._said_s) >= NOTES_MAX:
            self._said_s.clear()
        self._said_s[key] = at_s
        self.emit(FindingNoted(at_s=at_s, finding=finding, text=text))


def _overtakes(report: AnyReport) -> bool:
    """Returns whether a report may be processed before earlier ones: a step, which is contained in each
    sample.
    """
    return isinstance(report, EventReport) and isinstance(report.event, StepReached)

"""Translates between the decision rules, which decide for the whole job, and the agents of its many nodes. Pure.

Orders of core/job are about the whole job: start, stop, check. Each agent starts, stops and checks one worker. This module
translates the orders into commands to agents, and agents' reports into events of the job. It guarantees:

- No worker of attempt N+1 starts before every reachable node has reported that no process of N runs there. A lost node
  counts as stopped: the next attempt uses another port and name, which fences it off (see `core.nodes.watch`).
- Two workers never share a node, and none is placed on a node that is lost, isolated, excluded or not yet checked.
- Every order gets an answer, whatever fails meanwhile: in the end a silent node counts as lost.

An order in progress holds the set of nodes it waits for. Reports, losses and ticks remove nodes from it; if an order is
repeated, only the remaining nodes get it again. Order ids are stable, so a repeated order is carried out once.
"""

from collections.abc import Iterable

from msgspec import UNSET

from holdfast.core.workers.acts import Act, Forget, Send, SetNodeAside, Tell
from holdfast.core.workers.devices import SickDevices
from holdfast.core.workers.memory import Memory
from holdfast.core.workers.notes import SameNotes
from holdfast.core.workers.orders import (
    Checking,
    Stopping,
    joined,
    of_node,
)
from holdfast.core.workers.placement import Placement
from holdfast.core.workers.roster import Roster, Settings
from holdfast.core.workers.standby import Standbys
from holdfast.core.workers.start import AttemptStart
from holdfast.model.checks import BOOT
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStartFailed,
    AttemptStopped,
    DeviceFaulted,
    DeviceHealed,
    FindingNoted,
    NodeIsolated,
    NodeReleased,
    NodesChecked,
    RankExited,
    RankStarted,
    StepReached,
    WorkerExited,
)
from holdfast.model.nodes.workers import (
    AgentEnded,
    AgentHello,
    CheckNode,
    DevicesSick,
    Leave,
    NodeAlive,
    NodeDown,
    NodeReady,
    NoMoreNodes,
    PassSignal,
    PortFound,
    SetAside,
    StandbyState,
    StopWorker,
)
from holdfast.model.orders import (
    CheckNodes,
    HealDevice,
    IsolateNode,
    PlaceWorkers,
    StartAttempt,
    StopAttempt,
)
from holdfast.model.state import Job

STEP_EVENT_S = 1.0
GroupOrder = PlaceWorkers | CheckNodes | StartAttempt | StopAttempt | IsolateNode | HealDevice
GroupNews = NodeReady | NodeDown | NodeAlive | AgentEnded | SetAside | NoMoreNodes


class WorkerGroup:
    """The nodes of a job, their agents and workers, as the controller sees them.

    `nodes`: those of the engine, most preferred first. `token`: unique to this job. Each method returns what the caller has
    to do (core/workers/acts.py), in order. `at_s`: on the job's clock.
    """

    def __init__(
        self,
        job: str,
        nodes: Iterable[str],
        settings: Settings,
        version: str,
        token: str,
        memory: Memory | None = None,
    ) -> None:
        memory = memory or Memory()
        self.roster = Roster(nodes, settings, version)
        self.shunned: frozenset[str] = frozenset()  # nodes that the node book excludes
        self._settings = settings
        self._memory = memory
        self._checking: Checking | None = None
        self._stopping: Stopping | None = None
        self._standbys = Standbys()
        self._placement = Placement(self.roster, self._standbys, settings.gather_s)
        self._launch = AttemptStart(self.roster, memory, f"{job}-{{attempt}}-{token}", settings.start_wait_s)
        self._step: int | None = None
        self._step_sent: int | None = None
        self._step_sent_s = float("-inf")
        self._notes = SameNotes()
        self.devices = SickDevices()
        self._signals = 0
        self._ticked_s: float | None = None

    def resume(self, job: Job, at_s: float) -> list[Act]:
        """Continues a job from the state in its journal.

        Nodes that the engine no longer has are lost at once.
        """
        roster, team = self.roster, self.roster.team
        roster.epoch = self._memory.resumes + 1
        team.attempt, team.over = job.attempt, not job.alive
        placed = {index: worker.node for index, worker in enumerate(job.workers) if worker.node is not None}
        # After a restart by the scheduler nothing runs on the earlier nodes, and the nodes may be different.
        team.nodes = placed if self._memory.moved else {**self._memory.nodes, **placed}
        team.exited = set(self._memory.exited) if self._memory.attempt == job.attempt else set()
        if self._memory.moved and self._settings.standby and job.step is not None:
            self._standbys.resumed(job.attempt)
        self._step_sent = self._step = job.step
        for name in job.lost:
            roster[name].lost, roster[name].aside = True, name in job.isolated
        roster.isolate([name for name in job.isolated if name not in job.lost])
        acts: list[Act] = []
        for worker, name in team.nodes.items():
            if name in job.lost:
                continue
            if not roster[name].known:
                acts += roster.lose(name, "it is no longer a node of this job", at_s)
            elif job.alive:
                roster.expect(worker, name, at_s, runs=self._memory.started >= job.attempt)
        return acts

    # Orders -----------------------------------------------------------------------------------------------

    def order(self, order: GroupOrder, at_s: float) -> list[Act]:
        """Starts to carry out an order of core/job for the whole job."""
        match order:
            case PlaceWorkers():
                return self._placement.begin(order, self.shunned, at_s)
            case CheckNodes():
                return self._check(order, at_s)
            case StartAttempt():
                return self._start(order, at_s)
            case StopAttempt():
                return self._stop(order, at_s)
            case IsolateNode():
                return self._isolate(order, at_s)
            case HealDevice():  # nothing here can reset a device; the cluster may say that it has healed
                has_healed = self.devices.was_reported(order.node, order.device) and not self.devices.is_sick(
                    order.node, order.device
                )
                healed = DeviceHealed(at_s=at_s, node=order.node, device=order.device, healed=has_healed)
                return [Tell(healed)]

    def signal(self, number: int) -> list[Act]:
        """Sends a signal to the command in every worker."""
        self._signals += 1
        team = self.roster.team
        if team.over:
            return []
        base = f"attempt-{team.attempt}/signal/"
        command = PassSignal(attempt=team.attempt, number=number)
        return [
            Send(node, self.roster.order_id(f"{base}{node}/{self._signals}"), command)
            for node in team.nodes.values()
            if not self.roster[node].lost
        ]

    def leave(self, code: int, reason: str) -> list[Act]:
        """Tells every connected agent to exit, because the job has ended."""
        acts: list[Act] = []
        for node in self.roster.nodes.values():
            if node.joined:
                acts += [Forget(node.name), Send(node.name, "leave", Leave(code=code, reason=reason))]
        return acts

    @property
    def is_moved(self) -> bool:
        """Returns whether the scheduler has ended all processes of the job and started it again since the last controller
        ran.
        """
        return self._memory.moved

    @property
    def is_gone(self) -> bool:
        """Returns whether the last agent has disconnected."""
        return not any(node.joined for node in self.roster.nodes.values())

    def workers(self, attempt: int) -> dict[int, str]:
        """Returns the node of each worker of this attempt, without lost ones."""
        team = self.roster.team
        if team.attempt != attempt:
            return {}
        return {worker: node for worker, node in team.nodes.items() if not self.roster[node].lost}

    # What comes in ----------------------------------------------------------------------------------------

    def joined(self, hello: AgentHello, address: str, at_s: float) -> list[Act]:
        """Handles an agent that has connected."""
        acts = self.roster.joined(hello, address, at_s)
        if hello.attempt and hello.attempt == self.roster.team.attempt and hello.worker is not None:
            acts += self._worker_started(hello.node, hello.attempt, at_s)
            acts += self._standbys.joined(hello, self.roster)
        return acts + self._go_on(at_s)

    def left(self, node: str, at_s: float) -> list[Act]:
        """Handles an agent whose connection was closed."""
        return self.roster.left(node, at_s) + self._go_on(at_s)

    def silent(self, node: str, for_s: float, at_s: float) -> list[Act]:
        """Handles an agent that has sent nothing for `for_s` seconds."""
        return self.roster.silent(node, for_s, at_s) + self._go_on(at_s)

    def news(self, news: GroupNews, at_s: float) -> list[Act]:
        """Handles the engine's report on the state of nodes."""
        if isinstance(news, NoMoreNodes):
            self._placement.no_more_nodes(news.reason)
            return self._go_on(at_s, look=True)
        is_more = isinstance(news, NodeReady | NodeAlive)
        return self.roster.news(news, at_s) + self._go_on(at_s, look=not is_more)

    def sick(self, news: DevicesSick, at_s: float) -> list[Act]:
        """Processes a report of the cluster that devices of a node are faulty, or healthy again."""
        team = self.roster.team
        faults = self.devices.hear(news, () if team.over else team.nodes.values(), team.attempt, at_s)
        return [Tell(fault) for fault in faults]

    def after(self, event: AnyEvent, at_s: float) -> list[DeviceFaulted]:
        """Returns the faults of devices that the cluster has reported and that this failure of the attempt confirms."""
        team = self.roster.team
        return self.devices.after(event, () if team.over else team.nodes.values(), team.attempt, at_s)

    def port_found(self, node: str, report: PortFound, at_s: float) -> list[Act]:
        """Processes the report that `node` has a free port for the rendezvous of an attempt."""
        acts = self._launch.port_found(node, report, at_s)
        return acts + self._go_on(at_s) if acts else []

    def stands_by(self, node: str, report: StandbyState, at_s: float) -> list[Act]:
        """Handles an agent's report on its standby processes."""
        return self._standbys.hear(node, report, self.roster, at_s)

    def on_report(self, node: str, event: AnyEvent, at_s: float) -> list[Act]:
        """Processes a report of an agent about its node.

        `event`: with `at_s` on the job's clock; `via` identifies the report.
        """
        back = self.heard(node, at_s)
        match event:
            case AttemptStarted():
                acts = self._worker_started(node, event.attempt, at_s)
            case AttemptStopped():
                acts = self._worker_stopped(node, event, at_s)
            case NodesChecked() if event.context == BOOT:
                acts = self._node_checked(node, of_node(event, node), at_s)
            case StepReached():
                acts = self._on_step(event, at_s) if self._is_mine(node, event.attempt) else []
            case FindingNoted():
                is_first = self.roster.team.nodes.get(0) == node
                noted = self._notes.hear(node, event, at_s, is_first=is_first)
                acts = [Tell(noted)] if noted is not None else []
            case NodesChecked():
                acts = [Tell(of_node(event, node))]
            case DeviceFaulted():
                acts = [Tell(event)]
            case AttemptStartFailed() | RankStarted() | RankExited() | WorkerExited():
                acts = self._passed_on(node, event)
            case _:  # agents send no other events
                acts = []
        return back + acts + self._go_on(at_s)

    def heard(self, node: str, at_s: float) -> list[Act]:
        """Records that a message from the agent arrived."""
        return self.roster.heard(node, at_s)

    def tick(self, at_s: float) -> list[Act]:
        """Does periodic work; to be called once a second."""
        before_s, self._ticked_s = self._ticked_s, at_s
        if before_s is not None and at_s - before_s > self._settings.watch.noted_s:
            self.roster.held_up(at_s - before_s)
        acts = self.roster.tick(at_s) + self._stand_by()
        acts += [Tell(noted) for noted in self._notes.turn(at_s)]
        if self._step != self._step_sent:
            acts += self._send_step(at_s)
        self.roster.changed = True  # time limits may be over
        return acts + self._go_on(at_s, look=True)

    def _is_mine(self, node: str, attempt: int) -> bool:
        """Returns whether the node runs a worker of the present attempt."""
        team = self.roster.team
        return attempt == team.attempt and team.worker_on(node) is not None

    def _passed_on(
        self, node: str, event: AttemptStartFailed | RankStarted | RankExited | WorkerExited
    ) -> list[Act]:
        team = self.roster.team
        if event.attempt != team.attempt or team.nodes.get(event.worker) != node:
            return []
        if isinstance(event, WorkerExited):
            team.exited.add(event.worker)
            self.roster[node].gone_s = None
        if isinstance(event, AttemptStartFailed):
            self._launch.give_up()
        return [Tell(event)]

    def _on_step(self, event: StepReached, at_s: float) -> list[Act]:
        if self._step is not None and event.step <= self._step:
            return []
        self._step = event.step
        if self._step_sent is not None and at_s - self._step_sent_s < STEP_EVENT_S:
            return []
        return self._send_step(at_s, event.via if event.via is not UNSET else None)

    def _send_step(self, at_s: float, via: str | None = None) -> list[Act]:
        if self._step is None or at_s - self._step_sent_s < STEP_EVENT_S:
            return []
        self._step_sent, self._step_sent_s = self._step, at_s
        attempt = self.roster.team.attempt
        return [Tell(StepReached(at_s=at_s, attempt=attempt, step=self._step, via=via or UNSET))]

    def _go_on(self, at_s: float, *, look: bool = False) -> list[Act]:
        """Continues the orders in progress after a change, without waiting for lost nodes.

        `look`: try to place workers, even if many nodes are missing.
        """
        acts: list[Act] = []
        lost, self.roster.lost_now = self.roster.lost_now, []
        for node in lost:
            acts += self._forget(node)
        acts += self._placement.turn(self.shunned, at_s, always=look)
        if self._checking is not None:
            acts += self._end_check(self._checking, at_s)
        if self._stopping is not None:
            acts += self._end_stop(self._stopping, at_s)
        acts += self._launch.turn(at_s)
        self.roster.changed = False
        return acts

    def _forget(self, node: str) -> list[Act]:
        """Stops waiting for a lost node."""
        if self._checking is not None:
            self._checking.waits_for.discard(node)
        if self._stopping is not None:
            self._stopping.waits_for.discard(node)
            self._stopping.left.pop(node, None)
        self._launch.nothing_old_on(node)
        return []

    # Checks -----------------------------------------------------------------------------------------------

    def _check(self, order: CheckNodes, at_s: float) -> list[Act]:
        waits_for = {node for node in order.nodes if not self.roster[node].lost}
        self._checking = Checking(order, waits_for)
        command = CheckNode(attempt=order.attempt, suite=order.suite)
        acts: list[Act] = [
            Send(node, self.roster.order_id(f"attempt-{order.attempt}/check/{node}"), command)
            for node in sorted(waits_for)
        ]
        return acts + self._go_on(at_s)

    def _node_checked(self, node: str, answer: NodesChecked, at_s: float) -> list[Act]:
        returned = self.roster.checked(node, answer, at_s)
        if returned is not None:
            return returned
        checking = self._checking
        if checking is not None and answer.attempt == checking.order.attempt and node in checking.waits_for:
            checking.waits_for.discard(node)
            checking.answers.append(answer)
        return []

    def _end_check(self, checking: Checking, at_s: float) -> list[Act]:
        """Answers the check order once all nodes have reported; lost ones are already reported to
        the core.
        """
        if checking.waits_for:
            return []
        self._checking = None
        return [Tell(joined(checking.order, checking.answers, at_s))]

    # Start ------------------------------------------------------------------------------------------------

    def _start(self, order: StartAttempt, at_s: float) -> list[Act]:
        team = self.roster.team
        if order.attempt < team.attempt or (order.attempt == team.attempt and team.stop_asked):
            return []
        if order.attempt > team.attempt:
            team.started, team.exited = set(), set()
            self._step = self._step_sent = None
        team.attempt, team.stop_asked, team.over = order.attempt, False, False
        team.nodes = {start.worker: start.node for start in order.workers}
        self._placement.cancel()
        self._stopping = None
        if self._memory.started >= order.attempt:  # a previous controller did
            return []
        return self._launch.begin(order, at_s) + self._go_on(at_s)

    def _stand_by(self) -> list[Act]:
        """Has the standby processes of the next attempt started on the same nodes, once the job trains."""
        team = self.roster.team
        trains = self._step is not None and self._memory.started >= team.attempt > self._standbys.asked
        if not (self._settings.standby and trains) or team.over or team.stop_asked or team.exited:
            return []
        return self._standbys.ask(self.roster)

    def _worker_started(self, node: str, attempt: int, at_s: float) -> list[Act]:
        team = self.roster.team
        if attempt != team.attempt:
            return []
        worker = team.worker_on(node)
        if worker is None:
            return []
        place = self.roster[node]
        place.attempt, place.worker = attempt, worker
        team.started.add(worker)
        self._launch.runs(worker, attempt)
        return []

    # Stop -------------------------------------------------------------------------------------------------

    def _stop(self, order: StopAttempt, at_s: float) -> list[Act]:
        team = self.roster.team
        if order.attempt == team.attempt and team.over:  # answered before, or nothing was started
            return [Tell(AttemptStopped(at_s=at_s, attempt=order.attempt))]
        if order.attempt == team.attempt:
            team.stop_asked = True
        stopping = self._stopping
        if stopping is None or stopping.order.attempt != order.attempt:
            waits_for = {node for node in team.nodes.values() if self._can_answer(node)}
            waits_for |= {
                node.name
                for node in self.roster.nodes.values()
                if node.attempt and self._can_answer(node.name) and node.returning != "stop"
            }
            self._stopping = stopping = Stopping(order, waits_for)
        stopping.order = order
        stop = StopWorker(
            attempt=order.attempt, reason=order.reason, finish_s=order.finish_s, force=order.force
        )
        acts: list[Act] = []
        for node in sorted(stopping.waits_for):
            for kind in ("port", "start", "stop", "look"):
                acts.append(Forget(node, f"attempt-{order.attempt}/{kind}"))
            order_id = self.roster.order_id(f"attempt-{order.attempt}/stop/{node}")
            acts.append(Send(node, order_id, stop))
        return acts + self._go_on(at_s)

    def _can_answer(self, name: str) -> bool:
        """Returns whether the node can still answer.

        A lost node counts as stopped, unless it is back and runs its worker.
        """
        node = self.roster[name]
        return not node.lost or (node.returning == "hold" and node.is_reachable)

    def _worker_stopped(self, node: str, event: AttemptStopped, at_s: float) -> list[Act]:
        acts = self.roster.stopped(node, event.attempt, at_s, all_gone=not event.left)
        stopping = self._stopping
        if not self.roster[node].attempt:
            self._launch.nothing_old_on(node)
        if stopping is None or event.attempt < stopping.order.attempt or node not in stopping.waits_for:
            return acts
        if event.left:
            stopping.left[node] = event.left
        else:
            stopping.left.pop(node, None)
            stopping.waits_for.discard(node)
        return acts

    def _end_stop(self, stopping: Stopping, at_s: float) -> list[Act]:
        attempt = stopping.order.attempt
        left = stopping.processes_left
        if stopping.waits_for and (stopping.waits_for != stopping.left.keys() or left == stopping.reported):
            return []
        stopping.reported = left
        if not stopping.waits_for:
            self._stopping = None
            self._launch.cancel()
            if attempt == self.roster.team.attempt:
                self.roster.team.over = True
        return [Tell(AttemptStopped(at_s=at_s, attempt=attempt, left=left))]

    # Isolation --------------------------------------------------------------------------------------------

    def _isolate(self, order: IsolateNode, at_s: float) -> list[Act]:
        isolated = Tell(NodeIsolated(at_s=at_s, node=order.node))
        node = self.roster[order.node]
        if order.only_lost and not (node.lost or node.isolated):
            return [isolated, Tell(NodeReleased(at_s=at_s, node=order.node))]  # it has returned meanwhile
        if node.isolated or not self.roster.set_aside(order.node):
            return [isolated]
        return [SetNodeAside(order.node, order.reason)]

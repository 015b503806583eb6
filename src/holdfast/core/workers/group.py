"""Translates between a job's core and the many nodes it runs on. Pure: no clock, file, socket or dice.

The core orders and hears of the job as a whole: start, stop, check. Agents start, stop and check one worker each. Here
the one becomes the others, in both directions. What keeps a job sound over many nodes is kept here:

- Nobody is told to start attempt N+1 before every node that can be reached has said that nothing of N is left there. A
  node that is lost counts as stopped: it is fenced off by the next attempt's port and name (see `core.node_watch`).
- Two workers never share a node, and none is placed on one that is lost, isolated, shunned or not yet checked.
- Every order is answered, whatever is lost meanwhile; at the latest the silence of a node becomes its loss.

An order under way is a set of those that are waited for; each report, loss or tick takes away from it, and what is left
is asked again when the core orders it again. Order ids are stable, so that one given twice is carried out once.
"""

from collections.abc import Iterable

from msgspec import UNSET

from holdfast.core.plurals import counted
from holdfast.core.workers.acts import Act, Forget, MoreNodes, Send, SetNodeAside, Tell
from holdfast.core.workers.meeting import MeetingPlace
from holdfast.core.workers.memory import Memory
from holdfast.core.workers.nodes import names, placed
from holdfast.core.workers.notes import SameNotes
from holdfast.core.workers.orders import (
    Checking,
    Placing,
    Starting,
    Stopping,
    joined,
    meeting,
    of_node,
    starts,
)
from holdfast.core.workers.roster import Roster, Settings
from holdfast.core.workers.standby import Standbys
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
    NodesChecked,
    Placed,
    PlacementFailed,
    RankExited,
    RankStarted,
    StepReached,
    WorkerExited,
    WorkersPlaced,
)
from holdfast.model.nodes.workers import (
    AgentEnded,
    AgentHello,
    CheckNode,
    FindPort,
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
NOT_STARTED = 125  # what a worker that was never started is said to have exited with
GroupOrder = PlaceWorkers | CheckNodes | StartAttempt | StopAttempt | IsolateNode | HealDevice
GroupNews = NodeReady | NodeDown | NodeAlive | AgentEnded | SetAside | NoMoreNodes


class WorkerGroup:
    """`nodes`: those of the engine, in the order in which they are preferred. `token`: of this job, never used before.

    Each call gives what is to be done, in its order. `at_s`: the job's clock.
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
        self.shunned: frozenset[str] = frozenset()  # by others: the book of nodes
        self._name = f"{job}-{{attempt}}-{token}"  # of a rendezvous
        self._settings = settings
        self._memory = memory
        self._placing: Placing | None = None
        self._checking: Checking | None = None
        self._starting: Starting | None = None
        self._stopping: Stopping | None = None
        self._meeting = MeetingPlace(memory)
        self._standbys = Standbys()
        self._step: int | None = None
        self._step_told: int | None = None
        self._step_told_s = float("-inf")
        self._notes = SameNotes()
        self._signals = 0
        self._ticked_s: float | None = None

    def resume(self, job: Job, at_s: float) -> list[Act]:
        """Goes on from the journal: `job` is what it comes to. Nodes that the engine no longer has are lost at once."""
        roster, team = self.roster, self.roster.team
        roster.epoch = self._memory.resumes + 1
        team.attempt, team.over = job.attempt, not job.alive
        placed = {index: worker.node for index, worker in enumerate(job.workers) if worker.node is not None}
        # Of a job that the scheduler has started anew nothing runs where it ran, and its nodes are others, or as good as.
        team.nodes = placed if self._memory.moved else {**self._memory.nodes, **placed}
        team.exited = set(self._memory.exited) if self._memory.attempt == job.attempt else set()
        if self._memory.moved and self._settings.standby and job.step is not None:
            self._standbys.resumed(job.attempt)
        self._step_told = self._step = job.step
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
        match order:
            case PlaceWorkers():
                self._placing = Placing(order, at_s)
                return self._place(at_s)
            case CheckNodes():
                return self._check(order, at_s)
            case StartAttempt():
                return self._start(order, at_s)
            case StopAttempt():
                return self._stop(order, at_s)
            case IsolateNode():
                return self._isolate(order, at_s)
            case HealDevice():  # nothing here can reset a device: that it healed cannot be claimed
                healed = DeviceHealed(at_s=at_s, node=order.node, device=order.device, healed=False)
                return [Tell(healed)]

    def signal(self, number: int) -> list[Act]:
        """For the command, in every worker."""
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
        """The job is over: every agent that is there ends, the lost ones too if they hear it."""
        acts: list[Act] = []
        for node in self.roster.nodes.values():
            if node.joined:
                acts += [Forget(node.name), Send(node.name, "leave", Leave(code=code, reason=reason))]
        return acts

    @property
    def is_gone(self) -> bool:
        """No agent is connected any more."""
        return not any(node.joined for node in self.roster.nodes.values())

    def workers(self, attempt: int) -> dict[int, str]:
        """The nodes of this attempt's workers, without those that are lost."""
        team = self.roster.team
        if team.attempt != attempt:
            return {}
        return {worker: node for worker, node in team.nodes.items() if not self.roster[node].lost}

    # What comes in ----------------------------------------------------------------------------------------

    def joined(self, hello: AgentHello, address: str, at_s: float) -> list[Act]:
        acts = self.roster.joined(hello, address, at_s)
        if hello.attempt and hello.attempt == self.roster.team.attempt and hello.worker is not None:
            acts += self._worker_started(hello.node, hello.attempt, at_s)
            acts += self._standbys.joined(hello, self.roster)
        return acts + self._go_on(at_s)

    def left(self, node: str, at_s: float) -> list[Act]:
        return self.roster.left(node, at_s) + self._go_on(at_s)

    def silent(self, node: str, for_s: float, at_s: float) -> list[Act]:
        return self.roster.silent(node, for_s, at_s) + self._go_on(at_s)

    def news(self, news: GroupNews, at_s: float) -> list[Act]:
        if isinstance(news, NoMoreNodes):
            if self._placing is not None:
                self._placing.no_more = news.reason
                self.roster.changed = True
            return self._go_on(at_s, look=True)
        is_more = isinstance(news, NodeReady | NodeAlive)
        return self.roster.news(news, at_s) + self._go_on(at_s, look=not is_more)

    def port_found(self, node: str, report: PortFound, at_s: float) -> list[Act]:
        starting = self._starting
        if starting is None or starting.order.attempt != report.attempt or starting.begun:
            return []
        if self._meeting.of(report.attempt, self.roster) is not None or node != self._master(starting):
            return []
        if not 0 < report.port < 65536:
            return self._not_started(starting, 0, "no free port was found on its node", at_s)
        meets = self._meeting.take(meeting(self._name, self.roster[node].address, report))
        return [Tell(meets.noted(at_s)), *self._go_on(at_s)]

    def stands_by(self, node: str, report: StandbyState, at_s: float) -> list[Act]:
        return self._standbys.hear(node, report, self.roster, at_s)

    def told(self, node: str, event: AnyEvent, at_s: float) -> list[Act]:
        """What an agent says of its node's part. `event`: its `at_s` is the job's, `via` names the report."""
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
            case _:  # an agent says nothing else of its worker
                acts = []
        return back + acts + self._go_on(at_s)

    def heard(self, node: str, at_s: float) -> list[Act]:
        """The agent lives, whatever it says."""
        return self.roster.heard(node, at_s)

    def tick(self, at_s: float) -> list[Act]:
        """Once a second."""
        before_s, self._ticked_s = self._ticked_s, at_s
        if before_s is not None and at_s - before_s > self._settings.watch.noted_s:
            self.roster.held_up(at_s - before_s)
        acts = self.roster.tick(at_s) + self._stand_by()
        acts += [Tell(noted) for noted in self._notes.turn(at_s)]
        if self._step != self._step_told:
            acts += self._tell_step(at_s)
        self.roster.changed = True  # waiting has its limits
        return acts + self._go_on(at_s, look=True)

    def _is_mine(self, node: str, attempt: int) -> bool:
        """The node runs a worker of the present attempt."""
        team = self.roster.team
        return attempt == team.attempt and team.worker_on(node) is not None

    def _passed_on(
        self, node: str, event: AttemptStartFailed | RankStarted | RankExited | WorkerExited
    ) -> list[Act]:
        team = self.roster.team
        if event.attempt != team.attempt or team.nodes.get(event.worker) != node:
            return []
        starting = self._starting
        if isinstance(event, WorkerExited):
            team.exited.add(event.worker)
            self.roster[node].gone_s = None
        if isinstance(event, AttemptStartFailed) and starting is not None:
            starting.is_over = True
        return [Tell(event)]

    def _on_step(self, event: StepReached, at_s: float) -> list[Act]:
        if self._step is not None and event.step <= self._step:
            return []
        self._step = event.step
        if self._step_told is not None and at_s - self._step_told_s < STEP_EVENT_S:
            return []
        return self._tell_step(at_s, event.via if event.via is not UNSET else None)

    def _tell_step(self, at_s: float, via: str | None = None) -> list[Act]:
        if self._step is None or at_s - self._step_told_s < STEP_EVENT_S:
            return []
        self._step_told, self._step_told_s = self._step, at_s
        attempt = self.roster.team.attempt
        return [Tell(StepReached(at_s=at_s, attempt=attempt, step=self._step, via=via or UNSET))]

    def _go_on(self, at_s: float, *, look: bool = False) -> list[Act]:
        """After any change: orders under way, with those who are lost no longer waited for.

        `look`: for places too, however many nodes are missing.
        """
        acts: list[Act] = []
        lost, self.roster.lost_now = self.roster.lost_now, []
        for node in lost:
            acts += self._forget(node)
        if self._placing is not None and self.roster.changed:
            # A word frees the one node that it is of: with thousands that join, not each is a reason to look at all.
            self._placing.missing -= 1
            if look or self._placing.missing <= 0:
                acts += self._place(at_s)
        if self._checking is not None:
            acts += self._end_check(self._checking, at_s)
        if self._stopping is not None:
            acts += self._end_stop(self._stopping, at_s)
        if self._starting is not None and not self._starting.is_over:
            acts += self._go_on_starting(self._starting, at_s)
        self.roster.changed = False
        return acts

    def _forget(self, node: str) -> list[Act]:
        """Nobody waits for a lost node."""
        if self._checking is not None:
            self._checking.waits_for.discard(node)
        if self._stopping is not None:
            self._stopping.waits_for.discard(node)
            self._stopping.left.pop(node, None)
        if self._starting is not None:
            self._starting.old.discard(node)
        return []

    # Placing ----------------------------------------------------------------------------------------------

    def _place(self, at_s: float) -> list[Act]:
        placing = self._placing
        assert placing is not None
        order = placing.order
        without = {*order.without_nodes, *order.keep_nodes, *self.shunned}
        free = self.roster.usable(without)
        found = placed(order.workers, self.roster.team.nodes, free)
        if found is not None:
            self._placing = None
            team = self.roster.team
            kept = {worker: node for worker, node in team.nodes.items() if node in order.keep_nodes}
            team.nodes = {**team.nodes, **{w: n for w, n in kept.items()}, **found}
            where = tuple(Placed(worker, node) for worker, node in found.items())
            placed_there = Tell(WorkersPlaced(at_s=at_s, attempt=order.attempt, placed=where))
            return [placed_there, *self._standbys.begin(order.attempt, found, self.roster)]
        placing.missing = len(order.workers) - len(free)
        return self._too_few(placing, free, without, at_s)

    def _too_few(self, placing: Placing, free: list[str], without: set[str], at_s: float) -> list[Act]:
        """Those that are expected are waited for; then others are asked for; then it is said that there are none."""
        wanted = len(placing.order.workers)
        hopeful = self.roster.hopeful(without)
        waits = len(hopeful) >= wanted and at_s - placing.since_s < self._settings.gather_s
        if placing.failed or waits:
            return []
        if not placing.more_asked:
            placing.more_asked = True
            workers = len(placing.order.keep_nodes) + wanted
            return [MoreNodes(workers, tuple(sorted(self._never_again(without))))]
        if placing.no_more is None:
            return []
        placing.failed = True
        away = names(name for name in hopeful if name not in free)
        text = f"{counted(wanted, 'worker needs', 'workers need')} a node and {counted(len(free), 'is', 'are')} free; {placing.no_more}"
        text += f"; not connected: {away}" if away else ""
        known = [node for node in self.roster.nodes.values() if node.known]
        hopeless = sum(1 for node in known if not node.isolated) < len(placing.order.keep_nodes) + wanted
        failed = PlacementFailed(
            at_s=at_s, attempt=placing.order.attempt, reason=text, hopeless=hopeless and not away
        )
        return [Tell(failed)]

    def _never_again(self, without: set[str]) -> set[str]:
        isolated = {node.name for node in self.roster.nodes.values() if node.isolated}
        return (without | isolated) - set(self._placing.order.keep_nodes if self._placing else ())

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
        """Of nodes that were lost meanwhile nothing is said: their loss was."""
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
            self._step = self._step_told = None
        team.attempt, team.stop_asked, team.over = order.attempt, False, False
        team.nodes = {start.worker: start.node for start in order.workers}
        self._placing = self._stopping = None
        if self._memory.started >= order.attempt:  # by a controller before this one
            return []
        starting = self._starting
        if starting is None or starting.order.attempt != order.attempt:
            waits_for = {start.worker for start in order.workers} - team.exited
            self._starting = starting = Starting(order, at_s, waits_for)
            for start in order.workers:
                node = self.roster[start.node]
                if (node.attempt, node.worker) == (order.attempt, start.worker):
                    waits_for.discard(start.worker)
        acts: list[Act] = []
        for node in self.roster.nodes.values():
            if node.attempt not in (0, order.attempt) and not node.lost and node.name not in starting.old:
                starting.old.add(node.name)
                stop = StopWorker(attempt=node.attempt, reason=f"attempt {order.attempt} is to start")
                order_id = self.roster.order_id(f"attempt-{order.attempt}/clear/{node.name}")
                acts.append(Send(node.name, order_id, stop))
        return acts + self._go_on(at_s)

    def _go_on_starting(self, starting: Starting, at_s: float) -> list[Act]:
        """One thing after the other: nothing old is left, a port, the workers, all of them run."""
        attempt = starting.order.attempt
        if not starting.waits_for:
            starting.is_over = True
            self._memory.started = attempt
            return [Tell(AttemptStarted(at_s=at_s, attempt=attempt))]
        if starting.begun and at_s - starting.since_s <= self._settings.start_wait_s:
            return []  # asked with each word of thousands of workers: only time is left to be looked at
        lost = any(self.roster[start.node].lost for start in starting.order.workers)
        if lost or self.roster.team.stop_asked:
            return []  # the core knows, and ends the attempt
        if at_s - starting.since_s > self._settings.start_wait_s:
            late = min(starting.waits_for)
            where = self.roster.team.nodes[late]
            reason = (
                f"the agent of {where} has not started worker {late} in {self._settings.start_wait_s:.0f} s"
            )
            return self._not_started(starting, late, reason, at_s)
        if starting.old or starting.begun or not self.roster[self._master(starting)].address:
            return []
        meets = self._meeting.of(attempt, self.roster)
        if meets is None:
            return self._ask_for_port(starting)
        starting.begun = True
        return [
            Send(start.node, f"attempt-{attempt}/start/{start.worker}", starts(start, meets, starting.order))
            for start in starting.order.workers
            if start.worker in starting.waits_for
        ]

    def _ask_for_port(self, starting: Starting) -> list[Act]:
        if starting.port_asked:
            return []
        starting.port_asked = True
        attempt = starting.order.attempt
        order_id = self.roster.order_id(f"attempt-{attempt}/port/0")
        return [Send(self._master(starting), order_id, FindPort(attempt=attempt, besides=self._meeting.port))]

    def _stand_by(self) -> list[Act]:
        """The job trains: from now on the next attempt's processes are made ready, where the same nodes run it."""
        team = self.roster.team
        trains = self._step is not None and self._memory.started >= team.attempt > self._standbys.asked
        if not (self._settings.standby and trains) or team.over or team.stop_asked or team.exited:
            return []
        return self._standbys.ask(self.roster)

    def _master(self, starting: Starting) -> str:
        return min(starting.order.workers, key=lambda start: start.worker).node

    def _not_started(self, starting: Starting, worker: int, reason: str, at_s: float) -> list[Act]:
        starting.is_over = True
        failed = AttemptStartFailed(
            at_s=at_s, attempt=starting.order.attempt, worker=worker, code=NOT_STARTED, reason=reason
        )
        return [Tell(failed)]

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
        if self._starting is not None and self._starting.order.attempt == attempt:
            self._starting.waits_for.discard(worker)
        return []

    # Stop -------------------------------------------------------------------------------------------------

    def _stop(self, order: StopAttempt, at_s: float) -> list[Act]:
        team = self.roster.team
        if order.attempt == team.attempt and team.over:  # it has been answered, or nothing was begun
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
        """A lost node counts as stopped; one that is back and still holds its part of the attempt is asked."""
        node = self.roster[name]
        return not node.lost or (node.returning == "hold" and node.is_reachable)

    def _worker_stopped(self, node: str, event: AttemptStopped, at_s: float) -> list[Act]:
        acts = self.roster.stopped(node, event.attempt, at_s, all_gone=not event.left)
        stopping, starting = self._stopping, self._starting
        if starting is not None and not self.roster[node].attempt:
            starting.old.discard(node)
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
        if stopping.waits_for and (stopping.waits_for != stopping.left.keys() or left == stopping.told):
            return []
        stopping.told = left
        if not stopping.waits_for:
            self._stopping = self._starting = None
            if attempt == self.roster.team.attempt:
                self.roster.team.over = True
        return [Tell(AttemptStopped(at_s=at_s, attempt=attempt, left=left))]

    # Isolation --------------------------------------------------------------------------------------------

    def _isolate(self, order: IsolateNode, at_s: float) -> list[Act]:
        isolated = Tell(NodeIsolated(at_s=at_s, node=order.node))
        if self.roster[order.node].isolated or not self.roster.set_aside(order.node):
            return [isolated]
        return [SetNodeAside(order.node, order.reason)]

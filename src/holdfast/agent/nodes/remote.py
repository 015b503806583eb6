"""Implements the agent of one node of a multi-node job: executes commands of the controller, reports events.

A thin layer over `WorkerAgent`, which a single-machine job runs in the controller's process. Never decides, never waits."""

import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from holdfast.agent.attempt import Attempt
from holdfast.agent.environment import free_port
from holdfast.agent.evidence_reply import EvidenceReply, looked_of
from holdfast.agent.launch import sweep_attempts
from holdfast.agent.nodes.home import NodeHome, clear, was_run
from holdfast.agent.nodes.shipping import Shipping
from holdfast.agent.part import Part, unmet
from holdfast.agent.watch.hang_scene import HangScene, Seen
from holdfast.agent.watch.logs import Signatures
from holdfast.agent.watch.looks import SCENE_S_MAX
from holdfast.agent.watch.step_logs import StepForms
from holdfast.agent.worker import WorkerAgent
from holdfast.core.plurals import counted
from holdfast.model.events import AnyEvent, AttemptStopped, FindingNoted, NodesChecked
from holdfast.model.nodes.workers import (
    AGENT_ENDS,
    AnyCommand,
    AnyReport,
    CheckNode,
    EventReport,
    FetchEvidence,
    FetchRecords,
    FindPort,
    Leave,
    LookCloser,
    PassSignal,
    PortFound,
    PrepareStandby,
    RecordsReport,
    Sampled,
    SampleStacks,
    SetUp,
    StandbyState,
    StartWorker,
    StopWorker,
)
from holdfast.model.orders import CheckNodes, StopAttempt
from holdfast.model.samples import RankSample
from holdfast.observe.clock import JobClock
from holdfast.observe.logs.follow import Chunk

ANY_ADDRESS = ""
REAPER_S = 20.0  # beyond the grace: a reaper gives up on what cannot be killed after half of it


class Send(Protocol):
    """Sends a message to the controller. `drop`: the message may be dropped if the queue is full."""

    def __call__(self, report: AnyReport, drop: bool = False) -> None: ...


class RemoteAgent:
    """Agent of one node of a multi-node job.

    `done`: called with the id of a command that need not be sent again. `ships`: True if files may be sent; None: shared disk.
    """

    def __init__(
        self,
        given: SetUp,
        home: NodeHome,
        node: str,
        clock: JobClock,
        send: Send,
        done: Callable[[str], None],
        env: Mapping[str, str],
        signatures: Signatures,
        step_forms: StepForms,
        *,
        ships: Callable[[], bool] | None = None,
    ) -> None:
        self.job, self.cwd = given.job, given.cwd
        self.leaving: Leave | None = None
        self._home = home
        self._node = node
        self._clock = clock
        self._send = send
        self._done = done
        self._settings = replace(given.settings, detach=True)
        self.worker = WorkerAgent(
            self._settings,
            given.job,
            home.job_folder,
            clock,
            self._emit,
            _no_echo,
            env,
            given.cwd,
            signatures,
            step_forms,
            node=node,
            sampled=self._sampled,
        )
        self._stops: set[int] = set()  # attempts that are to be answered for when nothing is left
        self._stop_until_s: float | None = None  # then the reaper is not waited for any longer
        self._checks: list[str] = []  # orders whose answer is still to come
        self._reply: tuple[str, EvidenceReply] | None = None
        self._looking: tuple[str, LookCloser, HangScene, float] | None = None
        self._standby_sent: StandbyState | None = None
        self._ships = ships
        self._shipping: list[Shipping] = []  # the last is of the present attempt
        self._ends = 0  # how often the agent itself was asked to end

    # What runs here -----------------------------------------------------------------------------------------

    def take_up(self) -> None:
        """Reattaches to the command that an earlier agent started, or reads the messages that its reaper left."""
        state = self._home.state
        if state.started and state.part is not None:
            self.worker.resume(state.started, state.part)

    @property
    def runs(self) -> tuple[int, int | None]:
        """Returns the attempt and the worker that run here; (0, None) if none does."""
        attempt = self.worker.attempt
        if attempt is None or attempt.over or (attempt.command_code is not None and not attempt.living):
            return 0, None
        return attempt.number, attempt.worker

    @property
    def folder(self) -> Path | None:
        """Returns the folder of the worker that runs here; None if none does."""
        attempt = self.worker.attempt
        return attempt.folder if attempt is not None and self.runs[0] else None

    @property
    def is_to_be_heard(self) -> bool:
        """Returns whether a reaper is connected and may have facts."""
        attempt = self.worker.attempt
        return attempt is not None and attempt.running.alive

    @property
    def leave_s(self) -> float:
        """Returns the time that a graceful end of the worker may take, in seconds."""
        return 2 * self._settings.grace_s

    def channels(self) -> list[int]:
        return self.worker.channels()

    # Commands -----------------------------------------------------------------------------------------------

    def carry_out(self, command: AnyCommand, order: str = "") -> None:
        """Executes a command of the controller. `order`: id of the command; empty if it is sent only once."""
        match command:
            case CheckNode() | FetchEvidence() | LookCloser():
                self._ask(command, order)
                return
            case FindPort() | StartWorker() | PrepareStandby() | StopWorker() | Leave():
                self._change(command)
            case SampleStacks():
                if (attempt := self._attempt(command.attempt)) is not None:
                    attempt.looks.asked_to_sample = command.ranks
            case FetchRecords():
                if (attempt := self._attempt(command.attempt)) is not None and attempt.living:
                    attempt.steps.stragglers.fetch(attempt.living, command.most)
            case PassSignal():
                if (attempt := self._attempt(command.attempt)) is not None:
                    attempt.signal(command.number)
            case SetUp():
                pass  # what it says was taken when the agent began
        if order:
            self._done(order)

    def _ask(self, command: CheckNode | FetchEvidence | LookCloser, order: str) -> None:
        """Starts a command whose execution takes time; it counts as done once its result is reported."""
        match command:
            case CheckNode():
                self._checks.append(order)
                nodes = (self._node,)
                self.worker.carry_out(CheckNodes(attempt=command.attempt, nodes=nodes, suite=command.suite))
            case FetchEvidence():
                self._ask_evidence(command, order)
            case LookCloser():
                self._look_closer(command, order)

    def _change(self, command: FindPort | StartWorker | PrepareStandby | StopWorker | Leave) -> None:
        match command:
            case FindPort():
                port = free_port(command.besides, ANY_ADDRESS)
                self._send(PortFound(attempt=command.attempt, port=port))
            case StartWorker():
                self._start(command)
            case PrepareStandby():
                self._prepare(command)
            case StopWorker():
                self._stop(command)
            case Leave():
                self._leave(command)

    def _attempt(self, number: int) -> Attempt | None:
        """Returns the attempt with this number, if it runs here; otherwise None."""
        attempt = self.worker.attempt
        return attempt if attempt is not None and attempt.number == number else None

    def _start(self, command: StartWorker) -> None:
        """Starts an attempt, unless it was started before or has ended, whatever a previous agent lost."""
        state, number = self._home.state, command.attempt
        if number < state.started or number <= state.stopped or self._ends:
            return
        part = _part(command)
        if number > state.started:
            self._home.note_start(number, part)
            folder = self.worker.worker_dir(number, part.worker)
            if not was_run(folder):
                if self.worker.keeper.standby is None:
                    clear(folder)
                self.worker.start(
                    number,
                    part,
                    {
                        "MA_SCHEDULE_CNT": str(command.schedule_cnt),
                        "MA_PROC_START_CNT": str(command.proc_start_cnt),
                    },
                )
                return
        if self._attempt(number) is None and not self.worker.copies.holds(number):
            self.worker.resume(number, part)

    def _prepare(self, command: PrepareStandby) -> None:
        state = self._home.state
        if command.attempt > max(state.started, state.stopped) and not self._ends:
            part, keeper = unmet(command.worker, command.workers), self.worker.keeper
            if self.runs[0]:
                keeper.wish(command.attempt, part)
            else:
                keeper.begin(command.attempt, part)

    def _stop(self, command: StopWorker) -> None:
        self._home.note_stop(command.attempt)
        standby = self.worker.keeper.standby
        if standby is not None and standby.number <= command.attempt:
            self.worker.drop_standby()
        self.worker.copies.cancel()
        attempt = self.worker.attempt
        if attempt is None or attempt.over or attempt.number > command.attempt:
            self._sweep(command.attempt)
            self._tell(AttemptStopped(at_s=self._clock(), attempt=command.attempt))
            return
        self._sweep(attempt.number - 1)
        self._stops.add(command.attempt)
        if self._stop_until_s is None:
            grace_s = 0.0 if command.force else self._settings.grace_s
            self._stop_until_s = self._clock() + command.finish_s + grace_s + REAPER_S
        self.worker.carry_out(
            StopAttempt(
                attempt=attempt.number,
                reason=command.reason,
                finish_s=command.finish_s,
                force=command.force,
            )
        )

    def _stop_without_reaper(self) -> None:
        """Stops an attempt whose reaper is stopped or blocked by a disk, so that the job is not delayed."""
        attempt = self.worker.attempt
        if self._stop_until_s is None or self._clock() < self._stop_until_s:
            return
        self._stop_until_s = None
        if attempt is None or attempt.over:
            return
        attempt.over = attempt.stopping = True
        text = f"the reaper of attempt {attempt.number} on {self._node} does not answer: its processes are killed"
        self._tell(FindingNoted(at_s=self._clock(), finding="reaper", text=text))
        self._emit(AttemptStopped(at_s=self._clock(), attempt=attempt.number))

    def _sweep(self, up_to: int) -> None:
        """Ends remaining processes of attempts up to `up_to` whose reapers no longer exist."""
        killed = sweep_attempts(self._home.job_folder, self._node, up_to) if up_to > 0 else ()
        if killed:
            text = f"ended {counted(len(killed), 'process', 'processes')} that an older attempt had left on {self._node}"
            self._tell(FindingNoted(at_s=self._clock(), finding="left-behind", text=text))

    def _leave(self, command: Leave) -> None:
        if self.leaving is None:
            self.leaving = command
            self.worker.drop_checks()
            self.worker.drop_standby()
            attempt = self.worker.attempt
            if attempt is not None and not attempt.over:
                reason = command.reason or "the job has ended"
                self.worker.carry_out(StopAttempt(attempt=attempt.number, reason=reason))

    @property
    def is_gone(self) -> bool:
        """Returns whether no process of the job is left here and all its reports are sent."""
        attempt = self.worker.attempt
        is_over = (attempt is None or attempt.over) and self.worker.standby_gone()
        return is_over and all(one.is_drained for one in self._shipping)

    def _ship(self) -> None:
        """Files of the present attempt, and what is still to be sent of those before."""
        attempt = self.worker.attempt
        if self._ships is None or attempt is None:
            return
        at_s = self._clock()
        if not self._shipping or self._shipping[-1].attempt != attempt.number:
            for one in self._shipping:
                one.finish()
            send = partial(self._send, drop=True)
            self._shipping.append(Shipping(attempt.folder, attempt.number, attempt.worker, send, self._ships))
        if self.leaving is not None and attempt.over:
            self._shipping[-1].finish()
        for one in self._shipping:
            one.turn(at_s)
        self._shipping = [
            one for one in self._shipping if one.attempt == attempt.number or not one.is_drained
        ]

    def end(self, number: int) -> None:
        """Ends the agent on a signal: the worker gets the signal and the grace period; a second signal kills the worker."""
        self._ends += 1
        force = self._ends > 1
        name, attempt = signal.Signals(number).name, self.worker.attempt
        reason = f"{name} was sent to the agent of {self._node}"
        self._tell(
            FindingNoted(
                at_s=self._clock(), finding=AGENT_ENDS, text=f"{reason}: the worker of this node ends"
            )
        )
        self.leaving = Leave(code=128 + number, reason=reason)
        self.worker.drop_checks()
        self.worker.drop_standby()
        if attempt is None or attempt.over:
            return
        if not force:
            self.worker.signal(number)
        finish_s = 0.0 if force else self._settings.grace_s
        self.worker.carry_out(
            StopAttempt(attempt=attempt.number, reason=reason, finish_s=finish_s, force=force)
        )

    def pass_signal(self, number: int) -> None:
        self.worker.signal(number)

    # Questions ------------------------------------------------------------------------------------------------

    def _ask_evidence(self, command: FetchEvidence, order: str) -> None:
        if self._reply is not None:
            before, reply = self._reply
            if reply.asked == command and not reply.is_over:
                if order != before:
                    self._done(order)
                return
            self._done(before)
        worker = self.worker
        mine = worker.part.worker if worker.part is not None else 0
        reply = EvidenceReply(command, mine, self._clock, worker.fitness, worker.node_log, worker.signatures)
        self._reply = order, reply
        self._send_evidence(order, reply)  # the verdict may need no more than what is known now

    def _look_closer(self, command: LookCloser, order: str) -> None:
        attempt = self._attempt(command.attempt)
        if attempt is None or attempt.over:
            self._done(order)
            return
        if self._looking is not None:
            self._done(self._looking[0])
        attempt.looks.sampler.signals.suspect()
        scene = attempt.looks.look_closer(command.stalled_s)
        self._looking = order, command, scene, self._clock()

    def hear(self) -> None:
        """Processes messages of reapers and results of checks as soon as they arrive."""
        self.worker.hear()

    def look(self) -> None:
        """Does the periodic work. Call it ten times a second."""
        self.worker.look()
        self._stop_without_reaper()
        self._send_standby()
        self._send_records()
        self._ship()
        if self._reply is not None:
            self._send_evidence(*self._reply)
        if self._looking is not None:
            self._send_look(*self._looking)
        if self._home.why_not:
            text, self._home.why_not = self._home.why_not, ""
            self._tell(FindingNoted(at_s=self._clock(), finding="not-kept", text=text))

    def connected(self) -> None:
        """Handles a new connection to the controller, which may be a new process without the state of this node's standby."""
        self._standby_sent = None

    def _send_standby(self) -> None:
        keeper, sent = self.worker.keeper, self._standby_sent
        now = None
        if keeper.standby is not None and keeper.part is not None and keeper.standby.is_ready:
            attempt, worker = keeper.standby.number, keeper.part.worker
            now = StandbyState(attempt=attempt, worker=worker, is_ready=True)
        elif sent is not None and sent.is_ready:
            now = replace(sent, is_ready=False)
        if now is not None and now != sent:
            self._standby_sent = now
            self._send(now)

    def _send_records(self) -> None:
        attempt = self.worker.attempt
        fetched = attempt.steps.stragglers.fetched() if attempt is not None else None
        if attempt is None or fetched is None:
            return
        report = RecordsReport(
            attempt=attempt.number,
            worker=attempt.worker,
            entered=tuple(fetched.entered),
            peers=fetched.peers,
        )
        self._send(report, drop=True)

    def _send_evidence(self, order: str, reply: EvidenceReply) -> None:
        no_start = self.worker.no_start.get(reply.asked.attempt, "")
        evidence = reply.turn(self.worker.attempt, no_start)
        if evidence is not None:
            self._send(evidence)
        if reply.is_over:
            self._reply = None
            self._done(order)

    def _send_look(self, order: str, command: LookCloser, scene: HangScene, since_s: float) -> None:
        if not scene.is_done and self._clock() - since_s < SCENE_S_MAX:
            return
        self._looking = None
        attempt = self._attempt(command.attempt)
        if attempt is not None:
            seen = scene.result if scene.is_done else Seen(None)
            self._send(looked_of(attempt, seen, command.look))
        self._done(order)

    # Reports --------------------------------------------------------------------------------------------------

    def _tell(self, event: AnyEvent) -> None:
        self._send(EventReport(event=event))

    def _emit(self, event: AnyEvent) -> None:
        if isinstance(event, AttemptStopped) and not event.left:
            self._stopped(event)
        self._tell(event)
        if isinstance(event, NodesChecked) and event.context == "boot":
            for order in self._checks:
                self._done(order)
            self._checks.clear()

    def _stopped(self, event: AttemptStopped) -> None:
        """Completes the stop of a newer attempt that never ran here, once the older attempt has ended."""
        self._stop_until_s = None
        self._sweep(event.attempt)
        for number in sorted(self._stops - {event.attempt}):
            self._tell(replace(event, attempt=number))
        self._stops.clear()

    def _sampled(self, attempt: Attempt, samples: tuple[RankSample, ...], log_bytes: int) -> None:
        looks, ranks = attempt.looks, attempt.ranks
        report = Sampled(
            attempt=attempt.number,
            worker=attempt.worker,
            at_s=samples[0].at_s if samples else self._clock(),
            ranks=samples,
            world_size=attempt.world_size,
            log_bytes=log_bytes,
            step=attempt.step,
            first_step=attempt.first_step,
            node_busy_s=looks.sampler.node_busy_s,
            trends=looks.trends,
            steps=attempt.steps.stragglers.logged_steps(),
            throttled_s=attempt.steps.stragglers.held_back(
                {rank: ranks[rank].pid for rank in attempt.living}
            ),
            used=looks.sampler.used_while_still(samples),
        )
        self._send(report, drop=True)

    def close(self) -> None:
        """Closes the agent's connections without ending the processes that it supervises."""
        self.worker.close()


def _part(command: StartWorker) -> Part:
    return Part(
        worker=command.worker,
        workers=command.workers,
        master_address=command.master_address,
        master_port=command.master_port,
        run_id=command.run_id,
    )


def _no_echo(chunk: Chunk) -> None:
    """Drops output: users read it in the folder or have it sent."""

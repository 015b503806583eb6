"""Supervises a multi-node job: the controller's process, in which nothing trains.

It connects link, engine, worker group and controller, runs their main loop, and returns the training's exit
code. Agents and training do not depend on this process: another one can resume the job from its journal.
"""

import gc
import secrets
import signal
from collections.abc import Callable, Mapping

from holdfast import __version__
from holdfast.agent.rehearsed_verdict import rehearse
from holdfast.controller.calls import CallRelay, JobNow
from holdfast.controller.clock_notes import ClockNotes
from holdfast.controller.conclusion import Case, Concluding
from holdfast.controller.hang_watch import HangWatching
from holdfast.controller.journal_copies import JournalCopies
from holdfast.controller.loop import Controller, decisions
from holdfast.controller.parts import Parts
from holdfast.controller.requests import Requests
from holdfast.controller.shipped import ShippedFiles
from holdfast.controller.straggler_watch import StragglersWatching
from holdfast.controller.worker_group import WorkerGroupEngine
from holdfast.core.job.decision import Decision
from holdfast.core.nodes import watch as node_watch
from holdfast.core.plurals import counted
from holdfast.core.stragglers.wording import in_few_words
from holdfast.core.workers.group import WorkerGroup
from holdfast.core.workers.memory import FOR_OTHERS, MOVED, Memory
from holdfast.core.workers.roster import Settings as GroupSettings
from holdfast.engines.nodes import NodeEngine
from holdfast.journal.jobdir import JobDir
from holdfast.journal.recorder import Recorder
from holdfast.journal.rows import RawEntry
from holdfast.link.hub import Hub
from holdfast.link.peers import Limits
from holdfast.link.tls import make_certificate
from holdfast.model.events import (
    AnyEvent,
    FindingNoted,
    JobMoved,
    JobSubmitted,
    RankExited,
    StopRequested,
    Tick,
    WorkerExited,
)
from holdfast.model.nodes.workers import AGENT_ENDS, EndAsked, SetUp
from holdfast.model.orders import StopAttempt
from holdfast.model.settings import RunSettings
from holdfast.model.state import Ended, Running, State
from holdfast.model.steps import StepNow, Straggler
from holdfast.observe.clock import JobClock
from holdfast.observe.logs.step_file import StepFile, StepFileWriter
from holdfast.supervise.companions import Companions, companions_of
from holdfast.supervise.controller_files import (
    allow_many_connections,
    job_secret,
    publish,
    shared_token,
    withdraw,
)
from holdfast.supervise.fleet_notes import FleetNotes
from holdfast.supervise.live_signatures import live_signatures
from holdfast.supervise.monitoring.choice import Metrics, of_controller
from holdfast.supervise.nodes_evidence import NodesEvidence
from holdfast.supervise.start import (
    forget_environment,
    keep_environment,
    stop_request,
    write_facts,
)
from holdfast.supervise.wheel import LOOK_S, PASSED_ON, Wheel, collect_orphans
from holdfast.supervise.worker_echo import WorkerEcho
from holdfast.views.console import Console
from holdfast.views.log import PlainLog

TICK_S = 1.0
ASKED_S = 3.0  # for the scheduler to say whether it ends the job
TERMINATED = (-signal.SIGTERM, 128 + signal.SIGTERM)
GOODBYE_S = 10.0  # for agents to end once the job is over, beyond the grace of what may still run there
HUB_LIMITS = Limits(turn_bytes=1 << 19)  # a tenth of a second's work at most, however much is held back


class NodesSupervisor:
    """Main loop of a multi-node job's controller: one thread; nothing in it blocks longer than `LOOK_S`."""

    _relay: CallRelay
    hangs: HangWatching
    stragglers: StragglersWatching
    controller: Controller

    def __init__(
        self,
        settings: RunSettings,
        job: JobDir,
        console: Console,
        env: Mapping[str, str],
        cwd: str,
        engine: NodeEngine,
        memory: Memory | None = None,
    ) -> None:
        """Prepares the controller.

        Raises EngineRefused, ListenFailed, TlsUnavailable; OSError for an unwritable folder.
        """
        self.clock = JobClock()
        self._settings = settings
        self._console = console
        self._env, self._cwd = env, cwd
        self._job = job
        self._engine = engine
        self._memory = memory or Memory()
        allow_many_connections()
        # First of all: where none can be made, nothing has been written, and the job's name stays unused.
        tls = make_certificate(job.path) if settings.link_tls else None
        listen = [(address, engine.port) for address in engine.listen(job.path)]
        secret, token = job_secret(job), shared_token(job)
        self._files = ShippedFiles(job.path, self.clock)
        self.hub = Hub(
            secret=secret, listen=listen, clock=self.clock, seen=self._memory.seen, tls=tls, limits=HUB_LIMITS
        )
        self._clocks = ClockNotes(job.worker, self.hub.offset_s)
        self._place = publish(job, self.hub.addresses, tls.fingerprint if tls else "")
        self.record = Recorder(job.journal_path, self.clock, console.tell)
        self.plain_log = PlainLog(job.path, settings.policy)
        self._fleet = FleetNotes(settings, lambda: len(engine.nodes), self.clock, console.tell)
        self._signatures = live_signatures(env, rehearse, searches_logs=False)
        self.worker_group = WorkerGroup(
            job.name, engine.nodes, self._group_settings(), __version__, secrets.token_hex(3), self._memory
        )
        self.machine = WorkerGroupEngine(
            self.worker_group,
            self.hub,
            engine,
            SetUp(job=job.name, folder=str(job.path), cwd=cwd, settings=settings, token=token),
            self._parts,
            self.clock,
            self._hear,
            lambda: self.record.flush() and self._held is None,  # what is held is not written down yet
            lambda: self.record.last_seq,
        )
        self.controller = Controller(settings.policy, self.record, self.machine, self._on_decision)
        self.requests = Requests(self.controller, self.clock, settings.grace_s, self.machine.signal)
        self._echo = WorkerEcho(job.path, console.echo, console.tell)
        self._echoes_from_end = 0  # the attempt whose output another process has shown
        self._wheel = Wheel(console.tell)
        self._metrics = self._made_metrics()
        self._companions = Companions(job, companions_of(settings), env, self.clock, console.tell)
        self._ticked_s = 0.0
        self._looked_s = 0.0
        self._stop_signals = 0
        self._slow: tuple[Straggler, ...] = ()  # ranks, as last written down
        self._engine_asked = False
        self._is_end_asked = False  # for good, by the engine
        self._held: list[AnyEvent] | None = None  # until it is known whether the scheduler ends the job
        self._held_until_s: float | None = None  # where the engine need not answer
        self._moves: EndAsked | None = None
        self._evidence = NodesEvidence(job, settings, env)

    def _made_metrics(self) -> Metrics:
        parts = (self._job, self.record, self._wheel, self.hangs, self.stragglers, self.machine)
        handle = self.controller.handle
        return of_controller(
            self._settings, "many_nodes.of_many_nodes", self.clock, self._console.tell, handle, *parts
        )

    def _group_settings(self) -> GroupSettings:
        policy = self._settings.policy
        checks = policy.boot_check != "off" and policy.checks_act and not policy.shadow
        return GroupSettings(
            watch=node_watch.Settings(node_silence_s=self._settings.node_silence_s),
            checks=checks,
            spare_check=policy.boot_check if checks else "",
            check_again_s=policy.boot_check_again_s,
            standby=self._settings.standby and self._settings.shim and not policy.shadow,
        )

    def _parts(self, machine: WorkerGroupEngine) -> Parts:
        policy = self._settings.policy
        self.hangs = HangWatching(
            self.worker_group, policy, self._settings.platform_hang_min, self.clock, machine.note
        )
        conclusion = Concluding(
            self.worker_group,
            policy,
            lambda: self._signatures.by_id,
            lambda: self.hangs.hang,
            lambda: self.hangs.world_size,
            self._save,
            self._settings.node_silence_s,
        )
        self.stragglers = StragglersWatching(self.worker_group, lambda: self.hangs.is_looking)
        self._relay = CallRelay(
            self.hub.say,
            self._now,
            self._note_call,
            self.clock,
            self.hub.silent_s,
            carry_out=lambda word: self.requests.carry_out(word),
        )
        return Parts(
            hangs=self.hangs,
            stragglers=self.stragglers,
            conclusion=conclusion,
            calls=self._relay,
            files=self._files,
            shunned=self._fleet.shunned,
            why_not_isolate=self._fleet.why_not_isolate,
            copies=self._copies(),
        )

    def _copies(self) -> JournalCopies | None:
        files = self._engine.copied_files
        return JournalCopies(self.record, self.hub.say, self._job.path, files) if files is not None else None

    def _now(self) -> JobNow:
        """Returns the current state of the job for calls of users."""
        state = self.controller.state
        ended = state.phase.outcome if isinstance(state.phase, Ended) else ""
        team = self.worker_group.roster.team
        workers = {} if team.over else team.nodes
        connected, all_ = self.machine.connected, self._engine.nodes
        return JobNow(self._job.name, state.job.attempt, ended, workers, connected, all_)

    def _note_call(self, finding: str, text: str) -> None:
        """Journals a call of a user; calls are never rate-limited in the log."""
        attempt = self.controller.state.job.attempt or None
        event = FindingNoted(at_s=self.clock(), finding=finding, text=text, attempt=attempt)
        self.controller.handle(event)

    # Begin ------------------------------------------------------------------------------------------------

    def submit(self) -> int:
        write_facts(self.record, self._settings, self._job.name, self._cwd)
        keep_environment(self._job, self._env, self._console)
        submitted = JobSubmitted(
            at_s=self.clock(),
            job=self._job.name,
            workers=self._settings.nnodes,
            command=self._settings.command,
        )

        def begin() -> None:  # once signals are handled: a reader of the first line may send one
            nodes = counted(self._settings.nnodes, "node")
            self._console.tell(f"job {self._job.name} on {nodes}; its record: {self._job.path}")
            self._engine.begin(self._place)
            self.controller.handle(submitted)

        return self._turn(begin)

    def resume(self, state: State, rows: list[RawEntry]) -> int:
        """Resumes from `state`, the result of replaying `rows`. Returns the exit code."""
        self.clock.not_before(rows[-1][0] if rows else 0.0)
        for event, decision in decisions(rows, self._settings.policy):
            self.plain_log.remember(event, decision)
            self._fleet.remember(event, decision)
            self._metrics.hear(event, decision)
            self.requests.notes.remember(event)
        self.controller.state = state
        self._echoes_from_end = state.job.attempt
        self._console.tell(f"reattached to {self._job.name} in attempt {state.job.attempt}")

        def begin() -> None:
            self._engine.begin(self._place)
            if self._memory.moved:
                reason = "the scheduler has restarted the job"
                left_s, at_s = self._memory.left_s, self.clock()
                away_s = None if left_s is None else at_s - left_s
                self.controller.handle(JobMoved(at_s=at_s, reason=reason, away_s=away_s))
            self.machine.resume(self.controller.state.job)

        return self._turn(begin)

    # The wheel --------------------------------------------------------------------------------------------

    def _turn(self, begin: Callable[[], None]) -> int:
        gc.freeze()  # what is there by now stays: collecting it again and again holds up all agents
        self._companions.start()
        return self._wheel.turn(begin, self._once, self._is_over, self._finish)

    def _is_over(self) -> bool:
        return self.machine.ended is not None or (
            self._moves is not None and self.worker_group.roster.team.over
        )

    def _once(self) -> None:
        fenced = self._wheel.fenced
        self._wheel.wait([*self.machine.channels(), *self._metrics.channels()])
        fenced(self._take_signals)
        fenced(self.machine.turn)
        fenced(self._metrics.turn)
        at_s = self.clock()
        if at_s - self._looked_s >= LOOK_S:
            self._looked_s = at_s
            fenced(self._show)
            fenced(self._flush)
        fenced(self._heed_engine)
        fenced(lambda: self.requests.heed_platform(self.machine, self._settings.policy))
        if at_s - self._ticked_s >= TICK_S:
            self._ticked_s = at_s
            fenced(lambda: self._hear(Tick(at_s=at_s)))
            fenced(self._fleet.turn)
            fenced(self._companions.turn)
            fenced(lambda: self._note_clocks(at_s))
            fenced(self._note_evidence)
            fenced(lambda: self._keep_stragglers(at_s))
            collect_orphans()

    def _show(self) -> None:
        team = self.worker_group.roster.team
        if team.attempt and not self._settings.quiet:
            self._echo.follow(
                team.attempt,
                team.nodes,
                self.clock(),
                from_end=team.attempt == self._echoes_from_end,
            )
            self._echo.turn(self.clock())

    def _note_clocks(self, at_s: float) -> None:
        team = self.worker_group.roster.team
        if team.attempt and not team.over:
            self._clocks.turn(team.attempt, team.nodes, at_s, without=self._files.workers)

    def _flush(self) -> None:
        self.record.flush()
        self._console.flush()

    def _finish(self) -> int:
        """Prints the last output, ends the agents, then releases the engine. Returns the exit code."""
        ended = self.machine.ended
        code = ended.code if ended is not None else self._moves.code if self._moves is not None else 1
        leave = self._moves.leave_code if self._moves is not None else 0
        leave = self._engine.agents_end_with(code) if ended is not None else leave
        fenced = self._wheel.fenced
        fenced(lambda: self._echo.finish(self.clock()))
        fenced(lambda: self._relay.close("the job has ended"))
        fenced(
            lambda: self.machine.leave(
                leave, ended.reason if ended is not None else "the job is moved to other nodes"
            )
        )
        until_s = self.clock() + GOODBYE_S
        while not self.worker_group.is_gone and self.clock() < until_s:
            self._wheel.wait(self.machine.channels())
            fenced(self.machine.turn)
        fenced(lambda: self._engine.end(code))
        fenced(self._files.close)
        fenced(self._metrics.close)
        self.hub.close()
        if ended is not None:
            forget_environment(self._job)
            withdraw(self._job)
        fenced(self._evidence.close)
        fenced(self._fleet.close)
        self.record.close()
        self._console.close()
        return code

    # Signals and the scheduler ----------------------------------------------------------------------------

    def _take_signals(self) -> None:
        while self._wheel.signals:
            self._one_signal(self._wheel.signals.pop(0))

    def _one_signal(self, number: int) -> None:
        if number in PASSED_ON:
            self.machine.signal(number)
            return
        if number == signal.SIGHUP and self._settings.detach:
            return
        name = signal.Signals(number).name
        if not self._engine_asked and self._engine.signalled(number):
            self._engine_asked = True  # it may be the scheduler, which starts the job again by itself
            self._held, self._held_until_s = self._held or [], None
            return
        self._stop_signals += 1
        force = self._stop_signals > 1
        word = "at once" if force else "gracefully; send the signal again to end it at once"
        self._console.tell(f"{name}: ending the job {word}")
        if not force:
            self.machine.signal(signal.SIGTERM if number == signal.SIGHUP else number)
        running = isinstance(self.controller.state.phase, Running)
        finish_s = self._settings.grace_s if running else 0.0
        self.controller.handle(stop_request(number, self.clock(), force=force, finish_s=finish_s))

    def _hear(self, event: AnyEvent) -> None:
        """Passes an event to the controller, unless the scheduler is ending the processes of a moved job."""
        if self._moves is not None:
            return
        if self._held is None and self._is_scheduler_end(event) and self._engine.is_to_end():
            self._held, self._held_until_s = [], self.clock() + ASKED_S
            self.machine.goes_on = False
        if self._held is not None:
            self._held.append(event)
        else:
            self.controller.handle(event)

    def _is_scheduler_end(self, event: AnyEvent) -> bool:
        """Returns whether a process ended by a signal of the scheduler, as in a preemption."""
        if not isinstance(self.controller.state.phase, Running):
            return False
        if isinstance(event, FindingNoted):
            return event.finding == AGENT_ENDS
        return isinstance(event, RankExited | WorkerExited) and event.code in TERMINATED

    def _let_go(self) -> None:
        """Passes held events on, because the scheduler did not cause them, or does not say in time."""
        is_late = self._held_until_s is not None and self.clock() > self._held_until_s
        if self._held is not None and (is_late or (self.machine.goes_on and not self._engine_asked)):
            held, self._held, self._held_until_s = self._held, None, None
            for event in held:
                self.controller.handle(event)

    def _heed_engine(self) -> None:
        """Handles the scheduler's request to end the job.

        If it restarts the job itself, the journal stays open.
        """
        asked, self.machine.end_asked = self.machine.end_asked, None
        if asked is None or self._moves is not None:
            self._let_go()
            return
        held, self._held, self._held_until_s = self._held or [], None, None
        if not asked.comes_back:
            self._end_for(asked, held[0].at_s if held else self.clock())
            for event in held:  # what has ended meanwhile has not failed
                self.controller.handle(event)
            return
        text = f"{asked.reason}: the processes end, and the scheduler starts the job again"
        self.controller.handle(
            FindingNoted(
                at_s=self.clock(),
                finding=MOVED,
                text=text,
                attempt=self.controller.state.job.attempt,
                numbers={FOR_OTHERS: 1} if asked.for_others else {},
            )
        )
        self._moves = asked
        self.record.flush()
        stop = StopAttempt(
            attempt=self.worker_group.roster.team.attempt, reason=asked.reason, finish_s=asked.finish_s
        )
        self.machine.signal(signal.SIGTERM)
        self.machine.carry_out(stop)

    def _end_for(self, asked: EndAsked, at_s: float) -> None:
        """Ends the job for the scheduler, once; it signals this process too, after the agents."""
        if self._is_end_asked:
            return
        self._is_end_asked = True
        self._console.tell(f"ending the job: {asked.reason}")
        self.machine.signal(signal.SIGTERM)
        stop = StopRequested(
            at_s=at_s,
            reason=asked.reason,
            code=asked.code,
            finish_s=asked.finish_s,
            by="preemption" if asked.for_others else "scheduler",
        )
        self.controller.handle(stop)

    # What is seen -----------------------------------------------------------------------------------------

    def _save(self, case: Case) -> None:
        """Writes the evidence of an incident in a thread, so that the restart does not wait for it."""
        self._evidence.save(case, self.hangs.samples)

    def _keep_stragglers(self, at_s: float) -> None:
        """Writes the current stragglers to a step file for `holdfast status`; workers' files lack them."""
        attempt, now = self.worker_group.roster.team.attempt, self.stragglers.now
        if now != self._slow:
            self._slow = now
            words = StepNow(straggler="; ".join(map(in_few_words, now)))
            folder = self._job.attempt(attempt)
            StepFileWriter(folder).write(StepFile(at_s=at_s, attempt=attempt, now=words))

    def _note_evidence(self) -> None:
        for text in self._evidence.news():
            self.machine.note("evidence", text)

    def _on_decision(self, event: AnyEvent, decision: Decision) -> None:
        self.machine.decided(event)
        if isinstance(event, WorkerExited):
            self._wheel.fenced(lambda: self._echo.look_at(event.worker, self.clock()))
        self._console.decided(event, decision)
        self.plain_log.decided(event, decision)
        self._wheel.fenced(lambda: self._fleet.heard(event, decision))
        self._wheel.fenced(lambda: self._metrics.hear(event, decision))

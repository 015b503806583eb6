"""Supervises a job on one node: agent and controller in one process.

It connects the components and runs the main loop, which receives signals, messages of reapers and clock ticks, and
returns the training's exit code. Makes no decisions itself.
"""

import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast import struct_types
from holdfast.agent.part import Part
from holdfast.agent.rehearsed_verdict import rehearse
from holdfast.agent.verdict import with_logs
from holdfast.agent.watch.step_logs import StepForms
from holdfast.agent.worker import WorkerAgent
from holdfast.controller.loop import Controller, decisions
from holdfast.core.job.decision import Decision
from holdfast.engines.local.one_machine import LocalEngine
from holdfast.journal.jobdir import JobDir, JobInUse, StateDir
from holdfast.journal.recorder import Recorder
from holdfast.journal.rows import RawEntry
from holdfast.model.events import (
    AnyEvent,
    AttemptStartFailed,
    ControllerResumed,
    JobSubmitted,
    RankExited,
    RankStarted,
    Tick,
    WorkerExited,
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
from holdfast.model.settings import RunSettings
from holdfast.model.state import Running, State
from holdfast.observe.clock import JobClock
from holdfast.settings.read import step_forms
from holdfast.supervise.companions import Companions, companions_of
from holdfast.supervise.fleet_notes import FleetNotes
from holdfast.supervise.line_on_demand import LineOnDemand
from holdfast.supervise.live_signatures import live_signatures
from holdfast.supervise.monitoring.choice import of_controller
from holdfast.supervise.start import (
    USAGE,
    NotTakenUp,
    begun,
    forget_environment,
    keep_environment,
    kept_environment,
    stop_request,
    taken_up,
    write_facts,
)
from holdfast.supervise.wheel import LOOK_S, PASSED_ON, Wheel, collect_orphans
from holdfast.views.console import Console
from holdfast.views.log import PlainLog

TICK_S = 1.0
LEFTOVER_WAIT_S = 15.0  # for the standby to be gone at the end


class OneMachine:
    """Dispatcher of orders: to the engine for placement, to the agent for processes, to the console for
    messages.
    """

    def __init__(self) -> None:
        self.ended: EndJob | None = None
        self.engine: LocalEngine
        self.agent: WorkerAgent

    def carry_out(self, order: AnyOrder) -> None:
        match order:
            case PlaceWorkers() | IsolateNode() | HealDevice():
                self.engine.carry_out(order)
            case CheckNodes() | StartAttempt() | StopAttempt() | Diagnose():
                self.agent.carry_out(order)
            case TellPeople():
                pass  # the console has said it with the decision; `notify` sends it to other channels
            case EndJob():
                self.ended = order


class Among(Struct, frozen=True, kw_only=True):
    """The position of this worker among others that the same launcher started.

    `job`: the folder that all of them share.
    """

    part: Part
    job: JobDir


def _as_the_only_one(emit: Callable[[AnyEvent], None]) -> Callable[[AnyEvent], None]:
    """Renames this worker to 0 in events, because its controller supervises only this one."""

    def renamed(event: AnyEvent) -> None:
        if isinstance(event, RankStarted | RankExited | WorkerExited | AttemptStartFailed):
            event = msgspec.structs.replace(event, worker=0)
        emit(event)

    return renamed


class Supervisor:
    """The main loop of a single-node job. One thread; nothing in it blocks longer than `LOOK_S`."""

    def __init__(
        self,
        settings: RunSettings,
        job: JobDir,
        console: Console,
        env: Mapping[str, str],
        cwd: str,
        among: Among | None = None,
    ) -> None:
        """Prepares the supervisor.

        `among`: other workers, each with its own supervisor; None if this is the only worker.
        """
        struct_types.prepare()
        self.clock = JobClock()
        self._settings = settings
        self._console = console
        self._env, self._cwd = env, cwd
        self._job = job
        self._common = among.job if among else job
        self._machine = OneMachine()
        self.record = Recorder(job.journal_path, self.clock, console.tell)
        self.plain_log = PlainLog(job.path, settings.policy)
        self._fleet = FleetNotes(settings, lambda: 1, self.clock, console.tell)
        self.controller = Controller(settings.policy, self.record, self._machine, self._on_decision)
        emit = _as_the_only_one(self.controller.handle) if among else self.controller.handle
        self._machine.engine = LocalEngine(socket.gethostname(), self.clock, emit)
        self._machine.agent = WorkerAgent(
            settings,
            self._common.name,
            self._common.path,
            self.clock,
            emit,
            console.echo,
            env,
            cwd,
            live_signatures(env, rehearse),
            StepForms(lambda: step_forms(settings.step_pattern)),
            part=among.part if among else None,
            incidents=job.incidents,
            with_logs=with_logs,
        )
        self._line = LineOnDemand(
            job,
            self.controller,
            self._machine.agent,
            self.clock,
            console.tell,
            env,
            cwd,
            settings.grace_s,
        )
        self._wheel = Wheel(console.tell)
        self._metrics = of_controller(
            settings,
            "job.of_one_machine",
            self.clock,
            console.tell,
            self.controller.handle,
            self._common,
            self.record,
            self._wheel,
            self._machine.agent,
            among.part.worker if among else 0,
        )
        asked = companions_of(settings) if among is None else []
        self._companions = Companions(job, asked, env, self.clock, console.tell)
        self._ticked_s = 0.0
        self._looked_s = 0.0
        self._stop_signals = 0

    def submit(self) -> int:
        write_facts(self.record, self._settings, self._common.name, self._cwd)
        if self._settings.detach:
            keep_environment(self._job, self._env, self._console)
        submitted = JobSubmitted(
            at_s=self.clock(), job=self._common.name, workers=1, command=self._settings.command
        )

        def begin() -> None:  # once signals are handled: a reader of the first line may send one
            if self._common is self._job:  # else worker 0 says it, for all of them
                self._console.tell(f"job {self._job.name}; its record: {self._job.path}")
            self._fleet.warn_of(socket.gethostname())
            self.controller.handle(submitted)

        return self._turn(begin)

    def resume(self, state: State, rows: list[RawEntry]) -> int:
        """Resumes from `state`, the result of replaying `rows`. Returns the exit code."""
        self.clock.not_before(rows[-1][0] if rows else 0.0)
        for event, decision in decisions(rows, self._settings.policy):
            self.plain_log.remember(event, decision)
            self._fleet.remember(event, decision)
            self._metrics.hear(event, decision)
            self._line.notes.remember(event)
        self.controller.state = state
        if state.job.attempt:
            self._machine.agent.resume(state.job.attempt)
        self._console.tell(f"reattached to {self._job.name} in attempt {state.job.attempt}")
        return self._turn(lambda: self.controller.handle(ControllerResumed(at_s=self.clock())))

    def _turn(self, begin: Callable[[], None]) -> int:
        self._companions.start()
        return self._wheel.turn(begin, self._once, lambda: self._machine.ended is not None, self._finish)

    def _once(self) -> None:
        agent, fenced = self._machine.agent, self._wheel.fenced
        self._wheel.wait([*agent.channels(), *self._line.channels(), *self._metrics.channels()])
        fenced(self._take_signals)
        fenced(agent.hear)
        fenced(self._line.turn)
        fenced(self._metrics.turn)
        at_s = self.clock()
        if at_s - self._looked_s >= LOOK_S:
            self._looked_s = at_s
            fenced(agent.look)
            fenced(self._flush)
        if at_s - self._ticked_s >= TICK_S:
            self._ticked_s = at_s
            fenced(lambda: self.controller.handle(Tick(at_s=at_s)))
            fenced(self._fleet.turn)
            fenced(self._companions.turn)
            collect_orphans()

    def _flush(self) -> None:
        self.record.flush()
        self._console.flush()

    def _finish(self) -> int:
        """Ends standby and checks, then prints the outcome. Returns the exit code."""
        agent, ended = self._machine.agent, self._machine.ended
        assert ended is not None, "the event loop runs until then"
        self._wheel.fenced(self._line.close)
        agent.drop_checks()
        agent.drop_standby()
        until_s = self.clock() + LEFTOVER_WAIT_S
        while not agent.standby_gone() and self.clock() < until_s:
            self._wheel.wait(agent.channels())
        self._wheel.fenced(self._metrics.close)
        agent.close()
        forget_environment(self._job)
        self._wheel.fenced(self._fleet.close)
        self.record.close()
        self._console.close()
        return ended.code

    # Signals ----------------------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        while self._wheel.signals:
            self._one_signal(self._wheel.signals.pop(0))

    def _one_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if number in PASSED_ON:
            self._machine.agent.signal(number)
            return
        if number == signal.SIGHUP and self._settings.detach:
            return
        self._stop_signals += 1
        force = self._stop_signals > 1
        running = isinstance(self.controller.state.phase, Running)
        if not force:
            self._machine.agent.signal(signal.SIGTERM if number == signal.SIGHUP else number)
        word = "at once" if force else "gracefully; send the signal again to end it at once"
        self._console.tell(f"{name}: ending the job {word}")
        finish_s = self._settings.grace_s if running else 0.0
        self.controller.handle(stop_request(number, self.clock(), force=force, finish_s=finish_s))

    def _on_decision(self, event: AnyEvent, decision: Decision) -> None:
        self._console.decided(event, decision)
        self.plain_log.decided(event, decision)
        self._wheel.fenced(lambda: self._metrics.hear(event, decision))
        self._wheel.fenced(lambda: self._note(event, decision))

    def _note(self, event: AnyEvent, decision: Decision) -> None:
        """Records a decision in the node book; a thread writes it."""
        self._fleet.heard(event, decision)
        self._fleet.isolate_ordered(decision)


def run_job(settings: RunSettings) -> int:
    """Runs the command to its end. Returns the exit code of `holdfast run`: the training's own."""
    console = Console(quiet=settings.quiet)
    start = begun(settings, console)
    if start is None:
        return USAGE
    with start.lock:
        supervisor = Supervisor(start.settings, start.job, console, os.environ, start.cwd)
        return supervisor.submit()


def attach_job(state_dir: str, name: str | None, *, quiet: bool = False) -> int:
    """Reattaches to a job whose supervisor has died, from its journal. Returns the training's exit code."""
    console = Console(quiet=quiet)
    jobs = StateDir(Path(state_dir))
    if name is None and not jobs.jobs():
        console.tell(f"there is no job in {state_dir}")
        return USAGE
    try:
        job = jobs.job(name) if name else jobs.jobs()[0]
        lock = job.lock()
    except (LookupError, JobInUse, OSError) as error:
        console.tell(str(error))
        return USAGE
    with lock:
        found = taken_up(job, console, quiet=quiet)
        if isinstance(found, NotTakenUp):
            return found.code
        env = kept_environment(job, console)
        return Supervisor(found.settings, job, console, env, found.cwd).resume(found.state, found.rows)

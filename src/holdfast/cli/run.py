"""`holdfast run` and `holdfast attach`: one machine, agent and controller in one process.

Wires the rooms together and turns the wheel: signals, reapers and time come in, the training's exit
code goes out. Decides nothing.
"""

import os
import selectors
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from holdfast import __version__
from holdfast.agent.step_logs import StepForms
from holdfast.agent.worker import WorkerAgent
from holdfast.cli.console import Console
from holdfast.cli.live_signatures import live_signatures
from holdfast.cli.plain_log import PlainLog
from holdfast.cli.settings import step_forms
from holdfast.controller.loop import Controller, decisions, replay
from holdfast.core.decision import Decision
from holdfast.engines.local import LocalEngine
from holdfast.journal.jobdir import JobDir, JobExists, JobInUse, JobLock, StateDir, StateUnwritable
from holdfast.journal.recorder import Recorder
from holdfast.journal.rows import RawEntry
from holdfast.journal.store import JournalUnusable, NewerJournal, open_reader
from holdfast.model.events import AnyEvent, ControllerResumed, JobSubmitted, StopRequested, Tick
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
from holdfast.model.state import Ended, Running, State
from holdfast.observe.clock import JobClock
from holdfast.parsers.commands import recognise

ENVIRONMENT = "environment"  # beside the journal, while a detached job lives
LOOK_S = 0.1
FAULTS_TOLD_MAX = 20
TICK_S = 1.0
LEFTOVER_WAIT_S = 15.0  # for the standby to be gone at the end
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
USAGE = 2


class OneMachine:
    """Gives each order to whom it concerns: the engine places, the agent runs, the console speaks."""

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
                pass  # the console has said it with the decision; other channels are told by `notify`
            case EndJob():
                self.ended = order


class Supervisor:
    """The wheel. One thread; nothing in it waits longer than `LOOK_S`."""

    def __init__(
        self, settings: RunSettings, job: JobDir, console: Console, env: Mapping[str, str], cwd: str
    ) -> None:
        self.clock = JobClock()
        self._settings = settings
        self._console = console
        self._env, self._cwd = env, cwd
        self._job = job
        self._machine = OneMachine()
        self.record = Recorder(job.journal_path, self.clock, console.tell)
        self.plain_log = PlainLog(job.path, settings.policy)
        self.controller = Controller(settings.policy, self.record, self._machine, self._on_decision)
        emit = self.controller.handle
        self._machine.engine = LocalEngine(socket.gethostname(), self.clock, emit)
        self._machine.agent = WorkerAgent(
            settings,
            job.name,
            job.path,
            self.clock,
            emit,
            console.echo,
            env,
            cwd,
            live_signatures(env),
            StepForms(lambda: step_forms(settings.step_pattern)),
        )
        self._selector = selectors.DefaultSelector()
        self._watched: set[int] = set()
        self._ticked_s = 0.0
        self._looked_s = 0.0
        self._signals: list[int] = []
        self._stop_signals = 0
        self._faults = 0

    def submit(self) -> int:
        self.record.set_meta("policy", msgspec.json.encode(self._settings.policy))
        facts = {
            "name": self._job.name,
            "command": self._settings.command,
            "cwd": self._cwd,
            "host": socket.gethostname(),
            "version": __version__,
            "pid": os.getpid(),
            "detach": self._settings.detach,
            "settings": self._settings,
        }
        self.record.set_meta("job", msgspec.json.encode(facts))
        if self._settings.detach:
            self._keep_environment()
        submitted = JobSubmitted(
            at_s=self.clock(), job=self._job.name, workers=1, command=self._settings.command
        )
        return self._turn(lambda: self.controller.handle(submitted))

    def _keep_environment(self) -> None:
        """For restarts after an attach from another shell. It can hold secrets: for this user, while the job lives."""
        try:
            fd = os.open(
                self._job.path / ENVIRONMENT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
            with os.fdopen(fd, "wb") as file:
                file.write(b"\0".join(os.fsencode(f"{key}={value}") for key, value in self._env.items()))
        except OSError as error:
            self._console.tell(f"the environment cannot be kept for a later attach: {error}")

    def resume(self, state: State, rows: list[RawEntry]) -> int:
        """Goes on from `state`, which is what `rows` come to."""
        self.clock.not_before(rows[-1][0] if rows else 0.0)
        for event, decision in decisions(rows, self._settings.policy):
            self.plain_log.remember(event, decision)
        self.controller.state = state
        if state.job.attempt:
            self._machine.agent.resume(state.job.attempt)
        self._console.tell(f"took up {self._job.name} in attempt {state.job.attempt}")
        return self._turn(lambda: self.controller.handle(ControllerResumed(at_s=self.clock())))

    def _turn(self, begin: Callable[[], None]) -> int:
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = {number: signal.signal(number, self._on_signal) for number in _signals_to_heed()}
        old_wake = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._selector.register(woken, selectors.EVENT_READ)
        try:
            begin()
            while self._machine.ended is None:
                self._once(woken)
            return self._finish(self._machine.ended)
        finally:
            signal.set_wakeup_fd(old_wake)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(woken)
            os.close(wake)

    def _once(self, woken: int) -> None:
        agent = self._machine.agent
        self._watch(agent.channels())
        self._selector.select(LOOK_S)
        _drain(woken)
        self._fenced(self._take_signals)
        self._fenced(agent.hear)
        at_s = self.clock()
        if at_s - self._looked_s >= LOOK_S:
            self._looked_s = at_s
            self._fenced(agent.look)
            self._fenced(self._flush)
        if at_s - self._ticked_s >= TICK_S:
            self._ticked_s = at_s
            self._fenced(lambda: self.controller.handle(Tick(at_s=at_s)))
            _collect_orphans()

    def _flush(self) -> None:
        self.record.flush()
        self._console.flush()

    def _fenced(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the training its life
            self._faults += 1
            if self._faults <= FAULTS_TOLD_MAX:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(where.filename).name}, line {where.lineno}"
                self._console.tell(
                    f"a fault in Holdfast itself, which goes on: {error!r} ({place}); please report it"
                )
            time.sleep(LOOK_S)  # not a loop that turns on the spot

    def _watch(self, channels: list[int]) -> None:
        wanted = set(channels)
        for fd in self._watched - wanted:
            self._selector.unregister(fd)
        for fd in wanted - self._watched:
            self._selector.register(fd, selectors.EVENT_READ)
        self._watched = wanted

    def _finish(self, ended: EndJob) -> int:
        """The standby, if any, goes before the last word is said."""
        agent = self._machine.agent
        agent.drop_checks()
        agent.drop_standby()
        until_s = self.clock() + LEFTOVER_WAIT_S
        while not agent.standby_gone() and self.clock() < until_s:
            self._watch(agent.channels())
            self._selector.select(LOOK_S)
        agent.close()
        with suppress(OSError):
            os.unlink(self._job.path / ENVIRONMENT)
        self.record.close()
        self._console.close()
        return ended.code

    # Signals ----------------------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _take_signals(self) -> None:
        while self._signals:
            self._one_signal(self._signals.pop(0))

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
        word = "at once" if force else "cleanly; once more ends it at once"
        self._console.tell(f"{name}: ending the job {word}")
        request = StopRequested(
            at_s=self.clock(),
            reason=f"{name} was sent to Holdfast",
            force=force,
            code=128 + number,
            finish_s=self._settings.grace_s if running and not force else 0.0,
        )
        self.controller.handle(request)

    def _on_decision(self, event: AnyEvent, decision: Decision) -> None:
        self._console.decided(event, decision)
        self.plain_log.decided(event, decision)


def run_job(settings: RunSettings) -> int:
    """Runs the command to its end. Returns what `holdfast run` exits with: the training's own code."""
    console = Console(quiet=settings.quiet)
    clock = JobClock()
    try:
        cwd = os.getcwd()
    except OSError as error:
        console.tell(f"the working folder is gone ({error.strerror}): go to one that exists")
        return USAGE
    try:
        job, lock, settings = _job_folder(settings, clock(), console)
    except (JobExists, JobInUse, ValueError) as error:
        console.tell(str(error))
        return USAGE
    settings = _with_launcher(settings)
    with lock:
        supervisor = Supervisor(settings, job, console, os.environ, cwd)
        console.tell(f"job {job.name}; its record: {job.path}")
        return supervisor.submit()


def attach_job(state_dir: str, name: str | None, *, quiet: bool = False) -> int:
    """Takes up a job whose Holdfast is gone, by its journal. Returns what `run` would have."""
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
        try:
            settings, cwd, rows = _recorded(job)
        except (NewerJournal, JournalUnusable, msgspec.MsgspecError, KeyError) as error:
            console.tell(f"the journal of {job.name} cannot be read: {error}")
            return USAGE
        state = replay(rows, settings.policy)
        if isinstance(state.phase, Ended):
            console.tell(f"{job.name} has ended: {state.phase.outcome}: {state.phase.reason}")
            return state.phase.code
        settings = msgspec.structs.replace(settings, quiet=quiet)
        supervisor = Supervisor(settings, job, console, _kept_environment(job, console), cwd)
        return supervisor.resume(state, rows)


def _with_launcher(settings: RunSettings) -> RunSettings:
    """A launcher told to restart its ranks by itself is left to do so; Holdfast acts when it gives up."""
    if not recognise(settings.command, os.environ).restarts:
        return settings
    policy = msgspec.structs.replace(settings.policy, launcher_restarts=True)
    return msgspec.structs.replace(settings, policy=policy)


def _recorded(job: JobDir) -> tuple[RunSettings, str, list[RawEntry]]:
    """How the job was started, in which folder, and all that has been written down since."""
    reader = open_reader(job.journal_path)
    try:
        facts = msgspec.json.decode(reader.meta("job") or b"{}")
        settings = msgspec.convert(facts["settings"], RunSettings)
        return settings, str(facts["cwd"]), list(reader.read_raw())
    finally:
        reader.close()


def _kept_environment(job: JobDir, console: Console) -> Mapping[str, str]:
    """That of the `holdfast run` which began the job."""
    try:
        pairs = (job.path / ENVIRONMENT).read_bytes().split(b"\0")
    except OSError:
        console.tell("the environment of the first start is not known: restarts are given this shell's")
        return os.environ
    return dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)


def _job_folder(settings: RunSettings, at_s: float, console: Console) -> tuple[JobDir, JobLock, RunSettings]:
    """The job's folder, held for this process; somewhere else, said loudly, where the state folder cannot be written."""
    places = [
        Path(settings.state_dir),
        Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}",
        Path("/dev/shm"),
    ]
    for place in places:
        try:
            job = StateDir(place).create(settings.job, at_s)
            return job, job.lock(), msgspec.structs.replace(settings, state_dir=str(place))
        except StateUnwritable as error:
            console.tell(f"{error}; trying another place for the record, the training starts all the same")
    raise ValueError(f"no folder can be written for the job's output: tried {', '.join(map(str, places))}")


def _signals_to_heed() -> tuple[signal.Signals, ...]:
    """All that end a job or are passed on; not SIGHUP where it is ignored from the start, as under nohup."""
    heeded = (*STOP_SIGNALS, *PASSED_ON)
    return tuple(one for one in heeded if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN)


def _drain(woken: int) -> None:
    try:
        while os.read(woken, 512):
            pass
    except BlockingIOError:
        pass


def _collect_orphans() -> None:
    """As process 1 of a container Holdfast inherits every orphan there, and must collect it."""
    if os.getpid() != 1:
        return
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

"""Implements the agent of one worker: executes orders about its processes, and reports their events.

The controller may be in the same process or elsewhere (see nodes/remote.py). Never decides how to handle a
failure, and never waits for the training.
"""

import os
import shutil
import socket
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.agent import evidence
from holdfast.agent.attempt import Attempt
from holdfast.agent.bundle import BundleWriter
from holdfast.agent.checkpoints.keeper import RamCheckpoints
from holdfast.agent.environment import Given, Names, checkpoint_advice, environment, free_port, is_old_torch
from holdfast.agent.launch import LaunchSpec, Running, attach, launch, marked
from holdfast.agent.nodes.checks import NodeChecker
from holdfast.agent.nodes.fitness import Fitness
from holdfast.agent.nodes.log import NodeLog
from holdfast.agent.part import Part, unmet
from holdfast.agent.standby.keeper import StandbyKeeper, is_worth_a_standby, may_hold, may_restart
from holdfast.agent.standby.page_cache import CheckpointReader
from holdfast.agent.standby.zygote_keeper import ZygoteKeeper
from holdfast.agent.start_facts import start_facts
from holdfast.agent.watch.logs import LogWatch, Signatures
from holdfast.agent.watch.step_logs import StepForms
from holdfast.agent.watch.steps import StepWatching
from holdfast.core.compare.resume import LossMemory
from holdfast.core.hang import detect as hang
from holdfast.core.hang import platform_rule
from holdfast.core.steps.watch_settings import Baseline
from holdfast.core.verdict.conclude import answer
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStartFailed,
    AttemptStopped,
    DeviceFaulted,
    FindingNoted,
    HangFound,
)
from holdfast.model.orders import CheckNodes, Diagnose, StartAttempt, StopAttempt
from holdfast.model.samples import Hang, RankSample
from holdfast.model.settings import RunSettings
from holdfast.observe.clock import JobClock
from holdfast.observe.host.gpus import gpus_of
from holdfast.observe.logs.follow import Chunk
from holdfast.parsers.commands import recognise

BUNDLE_WAIT_S = 10.0  # at the end, for evidence that is being written
SIGNATURES_WAIT_S = 2.0  # a job that fails in its first seconds on this machine: they are being compiled
LOOK_S = 3.0  # for the flight records and stacks of ranks, which have deadlines of their own
SETTLE_S = 1.5  # how long a complaint about a lost peer waits for the peer's own error


class WorkerAgent:
    """Agent of one worker. `job_folder`: contains the folders of attempts. `emit`: receives events for the controller.

    `node`: its name; empty: this machine's. `sampled`: receives the samples if this worker is one of several; the controller
    then detects hangs, makes verdicts and chooses addresses. None: this worker is the whole job. `part`: the part of the
    attempt that this worker runs, if its launcher starts the others itself. `with_logs`: improves a verdict (agent.verdict).
    """

    def __init__(
        self,
        settings: RunSettings,
        job: str,
        job_folder: Path,
        clock: JobClock,
        emit: Callable[[AnyEvent], None],
        echo: Callable[[Chunk], None],
        base_env: Mapping[str, str],
        cwd: str,
        signatures: Signatures,
        step_forms: StepForms,
        *,
        node: str = "",
        part: Part | None = None,
        incidents: Path | None = None,
        sampled: Callable[[Attempt, tuple[RankSample, ...], int], None] | None = None,
        with_logs: evidence.WithLogs = evidence.first_alone,
    ) -> None:
        self.attempt: Attempt | None = None
        self.part: Part | None = part  # which part of it this worker is
        self._fixed_part = part
        self.no_start: dict[int, str] = {}  # attempts that could not begin, and why
        self._alone = sampled is None
        self._sampled = sampled
        self._with_logs = with_logs
        self._settings = settings
        self._settings_json = msgspec.json.encode(settings)
        self._job = job
        self._folder = job_folder
        self._clock = clock
        self._emit = emit
        self._echo = echo
        self._base_env = base_env
        self._cwd = cwd
        self.node = node or socket.gethostname()
        self.signatures = signatures
        self._step_forms = step_forms
        self._pace: Baseline | None = None  # of the attempt before
        self._losses = LossMemory()
        self.node_log = NodeLog()
        checker = NodeChecker(settings, self.node, base_env, cwd, clock)
        self.fitness = Fitness(checker, settings, base_env, clock, emit, self._own_pids)
        self._messages: deque[str] = deque()  # by other threads
        self._bundles = BundleWriter(incidents or job_folder / "incidents", self._messages.append)
        self._launcher = recognise(settings.command, base_env)
        program = shutil.which(settings.command[0], path=base_env.get("PATH")) if settings.command else None
        self._program = program or ""
        self._old_torch = is_old_torch(program) if program else False
        self._ranks_return = self._launcher.restarts > 0
        self._learned: hang.Learned | None = None
        self._diagnose: tuple[Diagnose, float] | None = None
        self._stopped_asked_s: float | None = None
        self._port = 0  # the last one that was given to a command
        self.zygotes = ZygoteKeeper(settings, cwd, base_env, clock, emit)
        forks = self.zygotes if self.zygotes.is_possible else None
        holds = self._alone and part is None and may_hold(settings, self._launcher, self._program)
        wanted = holds or is_worth_a_standby(settings, self._launcher)
        modes = {"holds_launcher": not self._alone, "holds_command": holds}
        modes["needs_proof"] = not self._launcher.runs_python
        self.keeper = StandbyKeeper(self._spec, clock, forks, is_wanted=wanted, **modes)
        self._reader = CheckpointReader(settings, cwd, base_env, is_wanted=may_restart(settings))
        is_shared = not self._alone or part is not None
        self.copies = RamCheckpoints(
            settings, job, self.node, job_folder, cwd, base_env, clock, emit, is_shared=is_shared
        )
        self._hang_settings = hang.Settings(hang_timeout_s=settings.policy.hang_timeout_s)
        self._platform_settings = platform_rule.Settings(detect_min=settings.platform_hang_min)

    # Orders -----------------------------------------------------------------------------------------------

    def carry_out(self, order: CheckNodes | StartAttempt | StopAttempt | Diagnose) -> None:
        match order:
            case CheckNodes():
                self.fitness.check(order)
            case StartAttempt():
                self._start(order)
            case StopAttempt():
                self._stop(order)
            case Diagnose():
                self._diagnose = (order, self._clock())
                if self.attempt is not None:
                    self._reader.tend(self.attempt)  # the next attempt may start before the next look
                self._answer_diagnosis()

    def resume(self, number: int, part: Part | None = None) -> None:
        """Reattaches to an attempt that another process started, and processes all messages of its reaper again."""
        part = part or self._own_part(number)
        running = attach(self.worker_dir(number, part.worker))
        self._take_up(number, part, running, from_end=True)

    def _start(self, order: StartAttempt) -> None:
        start = order.workers[0]
        counters = {
            "MA_SCHEDULE_CNT": str(start.schedule_cnt),
            "MA_PROC_START_CNT": str(start.proc_start_cnt),
        }
        self.start(order.attempt, None, counters)

    def start(self, number: int, part: Part | None, counters: Mapping[str, str]) -> None:
        """Starts the command for its part of the attempt; None: for the whole attempt, at an address of its own choice.

        `counters`: the variables MA_SCHEDULE_CNT and MA_PROC_START_CNT of the command. An attempt that was already
        started, or an older one, is not started.
        """
        if self.attempt is not None and self.attempt.number >= number:
            if self.attempt.number == number and self.attempt.ranks:
                self._emit(AttemptStarted(at_s=self._clock(), attempt=number))
            return
        begin = partial(self._begin, number, part, counters)
        if self.attempt is None or not self.copies.hold(number, begin):
            begin({})

    def _begin(
        self, number: int, part: Part | None, counters: Mapping[str, str], offered: Mapping[str, str]
    ) -> None:
        """Starts the attempt now. `offered`: variables for the command, if its checkpoint is not as it was saved."""
        counters = {**counters, **offered}
        if self.attempt is not None:
            self._learned = hang.learned(self.attempt.looks.watch)
            self._pace = self.attempt.steps.baseline
            self.keeper.note_imports(self.attempt)
            self.attempt.running.bye()
            self.attempt.close()
        if not self._release_standby(number, part, counters):
            self._launch(number, part or self._own_part(number), counters)

    def _launch(self, number: int, part: Part, counters: Mapping[str, str]) -> None:
        given = self._environment(number, part, counters)
        try:
            spec = self.keeper.not_ready(part, self._spec_of(number, part, given.env))
            running = launch(self.zygotes.offered(number, spec))
        except OSError as error:
            reason = f"the command's supervisor could not be started: {error}"
            self.no_start[number] = reason
            at_s, worker = self._clock(), part.worker
            self._emit(AttemptStartFailed(at_s=at_s, attempt=number, worker=worker, code=126, reason=reason))
            return
        if number == 1 and part.worker == 0:  # the others differ in their place alone
            for finding in start_facts(given, self._base_env, self._program, self._clock(), self._settings):
                self._emit(finding)
        self._take_up(number, part, running)
        cores = len(os.sched_getaffinity(0)) - 1  # a launcher imports on one
        if self._alone and cores:
            self.keeper.prepare_early(number + 1, self._own_part(number + 1))

    def _release_standby(self, number: int, part: Part | None, counters: Mapping[str, str]) -> bool:
        standby = self.keeper.release(number, part)
        if standby is None:
            return False
        if self._settings.detach:
            standby.running.detach()  # as a standby it would not have outlived Holdfast
        running, facts = standby.take(self._late_environment(number, part, counters, standby.env))
        attempt = self._take_up(number, part or self._own_part(number), running)
        attempt.hear(facts[1:])  # its first fact, Started, was the standby's; Released is the attempt's
        return True

    def _late_environment(
        self, number: int, part: Part | None, counters: Mapping[str, str], had: Mapping[str, str]
    ) -> Mapping[str, str]:
        """What was not known when the standby was started."""
        if self._alone or part is None:
            return counters
        env = self._environment(number, part, counters).env
        return {key: value for key, value in env.items() if had.get(key) != value}

    def _take_up(self, number: int, part: Part, running: Running, *, from_end: bool = False) -> Attempt:
        """What runs there is the attempt from now on. `from_end`: its output so far was followed before."""
        folder = running.folder
        rule = self._settings.slowdown_rule
        is_new = not from_end and part.worker == 0  # what is said once in an attempt
        steps = StepWatching(
            folder, number, self._step_forms, rule, self._pace, is_new=is_new, shares=not self._alone
        )
        steps.remember(self._losses)
        self.part = part
        self.zygotes.begun(number)
        self.attempt = Attempt(
            number,
            running,
            self._clock,
            self._emit,
            self._echo,
            self._learned,
            LogWatch(self.signatures, f"{folder.parent.name}/{folder.name}"),
            steps,
            self._base_env,
            worker=part.worker,
            workers=part.workers,
            sampled=self._pass_samples if self._sampled else None,
            from_end=from_end,
            ranks_return=self._ranks_return,
        )
        self._diagnose = self._stopped_asked_s = None
        return self.attempt

    def _pass_samples(self, samples: tuple[RankSample, ...], log_bytes: int) -> None:
        if self._sampled is not None and self.attempt is not None:
            self._sampled(self.attempt, samples, log_bytes)

    def _spec(self, number: int, part: Part) -> LaunchSpec:
        return self._spec_of(number, part, self._environment(number, part, {}).env)

    def _spec_of(self, number: int, part: Part, env: Mapping[str, str]) -> LaunchSpec:
        return LaunchSpec(
            argv=self._settings.command,
            cwd=self._cwd,
            env=env,
            folder=self.worker_dir(number, part.worker),
            detach=self._settings.detach,
        )

    def _own_part(self, number: int) -> Part:
        """Of an attempt that is this worker alone, or the one that its launcher made of it."""
        if self._fixed_part is not None:
            return self._fixed_part
        self._port = free_port(besides=self._port)
        return Part(master_port=self._port, run_id=f"{self._job}-{number}")

    def _environment(self, number: int, part: Part, counters: Mapping[str, str]) -> Given:
        names = Names(
            job=self._job,
            attempt=number,
            part=part,
            state_dir=Path(self._settings.state_dir),
            worker_dir=self.worker_dir(number, part.worker),
            node="" if self._alone else self.node,
        )
        advice = checkpoint_advice(self._folder) if self._settings.checkpoint_advice else {}
        return environment(
            self._base_env,
            names,
            self._launcher,
            counters={**counters, **advice},
            shim=self._settings.shim,
            old_torch=self._old_torch,
            deterministic=self._settings.deterministic,
        )

    def worker_dir(self, number: int, worker: int) -> Path:
        return self._folder / f"attempt-{number:03d}" / f"worker-{worker}"

    def _stop(self, order: StopAttempt) -> None:
        attempt = self.attempt
        self.copies.cancel()
        if order.attempt and (attempt is None or attempt.number != order.attempt or attempt.over):
            self._emit(AttemptStopped(at_s=self._clock(), attempt=order.attempt))
            return
        if attempt is None:
            return
        self.fitness.give_way()
        attempt.read_output()
        attempt.stopping = order.finish_s == 0.0
        self._stopped_asked_s = self._stopped_asked_s or self._clock()
        if not attempt.running.alive:
            self._emit(AttemptStopped(at_s=self._clock(), attempt=order.attempt))
            return
        grace_s = 0.0 if order.force else self._settings.grace_s
        attempt.running.stop(grace_s=grace_s, why=order.reason, finish_s=order.finish_s)

    def signal(self, number: int) -> None:
        if self.attempt is not None:
            self.attempt.signal(number)

    # The world --------------------------------------------------------------------------------------------

    def hear(self) -> None:
        """Processes new messages of reapers. Takes little time; call it as soon as one arrives."""
        if self.attempt is not None:
            self.attempt.hear(self.attempt.running.read())
            self.keeper.hurry(self.attempt)
            if self.attempt.is_done:  # thrown away while the launcher ends, it does not delay the job's end
                self.drop_standby()
        if self.keeper.standby is not None:
            self.keeper.standby.read()
        self.copies.release()  # an attempt that waits for its checkpoint
        self.fitness.hear()

    def look(self) -> None:
        """Processes output, errors, samples and the standby. Call it ten times a second."""
        self.hear()
        attempt = self.attempt
        if attempt is None:
            self.zygotes.stand_by(lambda: self._spec(1, unmet(0, self._settings.nnodes)).env)
            return
        attempt.read_output()
        attempt.read_errors()
        attempt.note_notes()
        self._look_at_node(attempt)
        found = attempt.look(self._hang_settings, self._platform_settings)
        if found is not None:
            self._confirm(attempt, found)
        self._answer_diagnosis()
        self._look_at_fitness(attempt)
        self._stop_waiting(attempt)
        self._tend_standby(attempt)

    def _stop_waiting(self, attempt: Attempt) -> None:
        """An ending that lasts longer than a reschedule is to wait for is cut short, and what cannot even be
        killed (state D) goes on in the background: it no longer counts as the attempt."""
        wait_s, asked_s = self._settings.termination_wait_s, self._stopped_asked_s
        if not wait_s or asked_s is None or attempt.over or self._clock() - asked_s < wait_s:
            return
        self._stopped_asked_s = None
        attempt.running.kill(f"ending it took longer than {wait_s:.0f} s")
        attempt.leave_behind = True

    def channels(self) -> list[int]:
        running = [self.attempt.running] if self.attempt else []
        running += [self.keeper.standby.running] if self.keeper.standby else []
        own = [*self.fitness.checker.channels(), *self.copies.channels()]
        return [*(one.fileno() for one in running if one.alive), *own]

    def _confirm(self, attempt: Attempt, found: Hang) -> None:
        attempt.hang = found
        kind, culprits, why = found.kind, found.culprits, found.why
        number, at_s = attempt.number, self._clock()
        self._emit(HangFound(at_s=at_s, attempt=number, hang=kind, culprits=culprits, reason=why))

    def _answer_diagnosis(self) -> None:
        if self._diagnose is None:
            return
        order, asked_s = self._diagnose
        at_s = self._clock()
        if order.attempt in self.no_start:
            self._diagnose = None
            self._emit(evidence.diagnosis_of_no_start(self.no_start[order.attempt], order.incident, at_s))
            return
        if self.attempt is None:
            return
        attempt = self.attempt
        if not self.signatures.is_over and at_s - asked_s <= SIGNATURES_WAIT_S:
            return
        if attempt.looks.is_looking:  # at a hang: that explains what ends meanwhile
            return
        early = evidence.diagnosis(attempt)
        checking = not attempt.start_error and self.fitness.troubleshoot(
            order, early, living=bool(attempt.living)
        )
        looks = evidence.needs_look(attempt, early)
        if not early.certain and at_s - asked_s <= SETTLE_S:
            return
        if evidence.waits_for_launcher(attempt, early, at_s - asked_s):
            return
        if looks and attempt.living and at_s - asked_s <= SETTLE_S:  # the others' ends give more evidence
            return
        seen = attempt.looks.look_at_failure() if looks else None
        if looks and seen is None and at_s - asked_s <= LOOK_S:
            return
        if checking:
            return
        self._diagnose = None
        attempt.report_last_step()
        attempt.scan(self.node_log.poll(at_s, now=True), now=True)
        verdict = self.fitness.with_checks(self._with_logs(early.first, attempt, seen), order)
        checks = tuple(self.fitness.checker.last.values())
        scene = evidence.scene_of(
            attempt, order.incident, early.failure, verdict, self.node_log.why_not, checks, at_s
        )
        self._bundles.write(replace(scene, settings=self._settings_json, env=self._base_env))
        for one in self.node_log.failed_of(verdict):
            self._emit(DeviceFaulted(at_s=at_s, node=self.node, device=one.device, code=one.code))
        self._emit(answer(verdict, order.incident, at_s))

    # Checks of the node -----------------------------------------------------------------------------------

    def drop_checks(self) -> None:
        """Lowers the priority of checks whose results are not needed any more."""
        self.fitness.checker.close()

    def _own_pids(self) -> tuple[int, ...]:
        """The processes of the job, including the standby's: they are not foreign."""
        ranks = [rank.pid for rank in self.attempt.ranks.values() if not rank.gone] if self.attempt else []
        if self.keeper.standby is None:
            return tuple(ranks)
        marks = {"HOLDFAST_JOB": self._job, "HOLDFAST_ATTEMPT": str(self.keeper.standby.number)}
        return (*ranks, *marked(marks))

    def _look_at_fitness(self, attempt: Attempt) -> None:
        if attempt.step is not None and not (
            attempt.stopping or attempt.is_done or self._diagnose is not None
        ):
            self.fitness.trains(attempt.number)

    # Evidence ---------------------------------------------------------------------------------------------

    def _look_at_node(self, attempt: Attempt) -> None:
        """The kernel's log: known faults are reported, and a failed device of the job is a fault."""
        at_s = self._clock()
        while self._messages:
            text = self._messages.popleft()
            self._emit(FindingNoted(at_s=at_s, finding="evidence", text=text, attempt=attempt.number))
        for text in (self.node_log.news(), self.signatures.news()):
            if text:
                self._emit(FindingNoted(at_s=at_s, finding="not-seen", text=text, attempt=attempt.number))
        chunks = self.node_log.poll(at_s)
        if not chunks:
            return
        attempt.scan(chunks, now=True)
        opened = gpus_of(rank.pid for rank in attempt.ranks.values() if not rank.gone)
        if opened and not attempt.stopping:
            for one in self.node_log.failed(attempt.logs, opened):
                self._emit(DeviceFaulted(at_s=at_s, node=self.node, device=one.device, code=one.code))

    # The standby ------------------------------------------------------------------------------------------

    def _tend_standby(self, attempt: Attempt) -> None:
        self.zygotes.tend(attempt, trains=self.keeper.trains(attempt))
        self._reader.tend(attempt)
        self.copies.tend(attempt)
        if self.keeper.tend(attempt) and self._alone:
            self.keeper.prepare(attempt.number + 1, self._own_part(attempt.number + 1))

    def drop_standby(self) -> None:
        """Ends the standby. Call it until `standby_gone` is True."""
        self.keeper.drop()

    def standby_gone(self) -> bool:
        return self.keeper.gone()

    def close(self) -> None:
        self.zygotes.drop()
        self._reader.close()
        self.copies.close(goes_on=self.attempt is not None and not self.attempt.over)
        self.fitness.checker.end()
        self._bundles.wait(BUNDLE_WAIT_S)
        self.node_log.close()
        if self.attempt is not None:
            self.attempt.running.bye()
            self.attempt.close()

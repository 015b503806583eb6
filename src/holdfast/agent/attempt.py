"""Runs one worker's part of an attempt on the agent's side: its processes, output and samples.

Turns messages of the reaper, lines of logs and samples of /proc into events. Its only decision is whether
ranks hang, made by the pure detectors in `core`, and only if this worker is the whole job.
"""

import errno
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.agent.error_files import ErrorFile, ErrorFiles
from holdfast.agent.launch import (
    AnyFact,
    CommandGone,
    LifelineLost,
    NoSocket,
    RankFound,
    RankGone,
    RankWithdrawn,
    ReaperFault,
    ReaperLost,
    Released,
    Running,
    Started,
    StartFailed,
    Stopped,
    Stopping,
    marked,
    sweep,
)
from holdfast.agent.leftovers import leftovers_of
from holdfast.agent.output import AttemptOutput
from holdfast.agent.watch.logs import LogWatch
from holdfast.agent.watch.looks import Looks, Rank
from holdfast.agent.watch.memory import MemoryWatch
from holdfast.agent.watch.steps import COMMAND_RUNS, StepWatching
from holdfast.core.hang import detect as hang
from holdfast.core.hang import platform_rule
from holdfast.core.plurals import counted
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStartFailed,
    AttemptStopped,
    FindingNoted,
    Numbers,
    RankExited,
    RankStarted,
    StepReached,
    WorkerExited,
)
from holdfast.model.failures import ErrorRecord, RankExit
from holdfast.model.samples import Hang, RankSample
from holdfast.model.steps import StepFinding
from holdfast.observe.clock import JobClock
from holdfast.observe.host.space import SpaceGuard
from holdfast.observe.logs.follow import Chunk, Follower
from holdfast.observe.logs.index import SOURCE
from holdfast.observe.processes.procs import RankReader

STEP_EVENT_S = 1.0
TRAINS_OPERATIONS = 100  # completed collectives, where no log names a step
NOT_FOUND, NOT_RUNNABLE = 127, 126
RANKS_WAIT_S = 60.0
SAID = "said"  # the source of a rank that has named itself


class Attempt:
    """One attempt on this worker. `sampled`: receives each second's samples and output sizes, if the controller compares
    all workers; None: this worker judges its own samples.
    """

    def __init__(
        self,
        number: int,
        running: Running,
        clock: JobClock,
        emit: Callable[[AnyEvent], None],
        echo: Callable[[Chunk], None],
        learned: hang.Learned | None,
        logs: LogWatch,
        steps: StepWatching,
        env: Mapping[str, str],
        *,
        worker: int = 0,
        workers: int = 1,
        sampled: Callable[[tuple[RankSample, ...], int], None] | None = None,
        from_end: bool = False,
        ranks_return: bool = False,
    ) -> None:
        self.number = number
        self.worker = worker
        self.workers = workers
        self.folder: Path = running.folder
        self.running = running
        self.logs = logs
        self.steps = steps
        self.ranks: dict[int, Rank] = {}
        self.world_size: int | None = None  # of the whole job
        self.local_size: int | None = None  # of this worker, where its ranks know it
        self.world_sizes: dict[int, int | None] = {}  # trainings side by side, and how many ranks each has
        self.exits: list[RankExit] = []
        self.errors: dict[int, ErrorRecord] = {}
        self.command_code: int | None = None
        self.hang: Hang | None = None
        self.start_error = ""
        self.memory = MemoryWatch()
        self._ranks_return = ranks_return  # the launcher starts ranks again by itself
        self.step: int | None = None
        self.first_step: int | None = None
        self.output_s: float | None = None  # when the command or a rank last wrote something
        self.started_s = clock()
        self.stopping = False
        self.leave_behind = False  # what cannot be killed no longer holds up the next attempt
        self.over = False  # nothing of it is left
        self._clock = clock
        self._emit = emit
        self._echo = echo
        self._sampled = sampled
        self._follower = Follower(self.folder, write_index=True, from_end=from_end)
        self._output = AttemptOutput()
        self._step_sent: int | None = None
        self._step_sent_s = 0.0
        self.looks = Looks(self, clock, self._note, learned, env, ranks_return=ranks_return)
        self.looks.sampler.spread = sampled is not None
        self._guarded_s = 0.0
        self._unknown_noted = self._trains_noted = False
        self._space = SpaceGuard(self.folder, self._outputs)
        self._error_files = ErrorFiles(self.folder)
        self._unheard: deque[AnyFact] = deque()
        self._started = False
        self._left_ranks = False  # the command has ended well before its ranks
        self._signals: list[int] = []  # for a command that does not run yet

    # Facts of the reaper --------------------------------------------------------------------------------

    def hear(self, facts: list[AnyFact]) -> None:
        """Processes new messages of the reaper, including those that an internal error left unprocessed in the last call."""
        self._unheard += facts
        while self._unheard:
            self._one(self._unheard.popleft())

    def _one(self, fact: AnyFact) -> None:
        at_s = self._clock()
        match fact:
            case Started() | Released():
                self._pass_held_signals()
                self._emit(AttemptStarted(at_s=at_s, attempt=self.number))
                if self.steps.says_that_the_command_runs:
                    self._note("command-running", COMMAND_RUNS)
            case StartFailed():
                self._not_started(fact, at_s)
            case RankFound() | RankGone() | RankWithdrawn():
                self._hear_of_rank(fact, at_s)
            case CommandGone():
                self.command_code = fact.code
                try:
                    self.read_output(finish=True)
                    self.read_errors()
                finally:
                    self._command_gone(fact.code, at_s)
            case Stopped():
                self._all_stopped(fact.left, at_s)
            case ReaperLost():
                self._reaper_lost(at_s)
            case NoSocket():
                text = f"the reaper has no socket ({fact.error}): holdfast attach will not be able to reattach to this job"
                self._note("no-socket", text, at_s)
            case ReaperFault():
                self._note("reaper", fact.error, at_s)
            case Stopping() | LifelineLost():
                pass

    def signal(self, number: int) -> None:
        """Sends a signal to the command. Waits until the command runs, because a starting process would not receive it."""
        self._signals.append(number)
        if self._started:
            self._pass_held_signals()

    def _pass_held_signals(self) -> None:
        self._started = True
        for number in self._signals:
            self.running.signal(number)
        self._signals.clear()

    def _not_started(self, fact: StartFailed, at_s: float) -> None:
        self.over = True
        self.start_error = fact.error
        code = NOT_FOUND if fact.errno == errno.ENOENT else NOT_RUNNABLE
        failed = AttemptStartFailed(
            at_s=at_s, attempt=self.number, worker=self.worker, code=code, reason=self.start_error
        )
        self._emit(failed)

    def _hear_of_rank(self, fact: RankFound | RankGone | RankWithdrawn, at_s: float) -> None:
        match fact:
            case RankFound():
                self._rank_found(fact, at_s)
            case RankGone():
                self._rank_gone(fact, at_s)
            case RankWithdrawn():
                self._rank_withdrawn(fact)

    def _rank_found(self, fact: RankFound, at_s: float) -> None:
        known = self.ranks.get(fact.rank)
        if known is not None and known.pid == fact.pid and not known.gone:
            self._note_sizes(fact)  # it says more of itself than its environment did
            return
        returns = self._ranks_return or (known is not None and known.gone and fact.source == SAID)
        if known is not None and not returns:
            return  # a helper that has outlived its rank carries the same RANK
        self.memory.rank_found(fact.pid)
        if known is not None:
            known.reader.close()
        reader = RankReader(fact.pid, fact.rank)
        self.ranks[fact.rank] = Rank(
            pid=fact.pid, reader=reader, local_rank=fact.local_rank, world=fact.world
        )
        self._note_sizes(fact)
        self._leave_out_of_each_other()
        self.errors.pop(fact.rank, None)  # a launcher may start the same rank again
        started = RankStarted(
            at_s=at_s, attempt=self.number, worker=self.worker, rank=fact.rank, pid=fact.pid
        )
        self._emit(started)
        if fact.world and fact.own_rank == 0:
            text = f"a second training runs in this command: its ranks are numbered from {fact.rank} on"
            self._note("worlds", text, at_s)

    def _note_sizes(self, fact: RankFound) -> None:
        self.world_sizes[fact.world] = fact.world_size
        sizes = list(self.world_sizes.values())
        known = [size for size in sizes if size is not None]
        self.world_size = sum(known) if len(known) == len(sizes) else None
        self.local_size = fact.local_world_size

    def _rank_withdrawn(self, fact: RankWithdrawn) -> None:
        rank = self.ranks.get(fact.rank)
        if rank is None or rank.pid != fact.pid:
            return
        rank.reader.close()
        del self.ranks[fact.rank]
        self._leave_out_of_each_other()

    def _leave_out_of_each_other(self) -> None:
        """Removes from a rank's counters what other ranks do that it has started."""
        pids = {rank.pid for rank in self.ranks.values()}
        for rank in self.ranks.values():
            rank.reader.leave_out = pids - {rank.pid}

    def _rank_gone(self, fact: RankGone, at_s: float) -> None:
        rank = self.ranks.get(fact.rank)
        if rank is not None and rank.pid == fact.pid:
            rank.gone, rank.code = True, fact.code
        if self.stopping:
            return
        self.exits.append(
            RankExit(rank=fact.rank, worker=self.worker, pid=fact.pid, code=fact.code, at_s=at_s)
        )
        if fact.code:
            self.looks.hurry_to_failure()
            self._report_step(at_s, now=True)
        self.read_errors()
        self._emit(
            RankExited(at_s=at_s, attempt=self.number, worker=self.worker, rank=fact.rank, code=fact.code)
        )
        if self._left_ranks and not self.living:
            self._emit(WorkerExited(at_s=at_s, attempt=self.number, worker=self.worker, code=0))

    def _command_gone(self, code: int, at_s: float) -> None:
        living = self.living
        if code == 0 and living and not self.stopping:
            text = f"the command has ended with 0 and left ranks {living} running: Holdfast waits for them"
            self._note("daemonised", text, at_s)
            self._left_ranks = True
            return
        if code == 0 and not self.stopping:
            self._note_leftovers(at_s)
        self._report_step(at_s, now=True)
        self._emit(WorkerExited(at_s=at_s, attempt=self.number, worker=self.worker, code=code))

    @property
    def living(self) -> list[int]:
        """Returns the ranks that were found and have not ended."""
        return sorted(rank for rank, seen in self.ranks.items() if not seen.gone)

    @property
    def is_done(self) -> bool:
        """Returns whether all ranks ended with code 0, so that only their launcher is still running."""
        ended_well = [rank for rank in self.ranks.values() if rank.gone and rank.code == 0]
        return len(ended_well) == (self.world_size if self.workers == 1 else self.local_size)

    def world_rank(self, local_rank: int | None) -> int | None:
        """Returns the global rank for a local rank of this worker; None if unknown."""
        if self.workers == 1 or local_rank is None:
            return local_rank
        return next((rank for rank, seen in self.ranks.items() if seen.local_rank == local_rank), None)

    def _note_leftovers(self, at_s: float) -> None:
        if text := leftovers_of(self.folder):
            self._note("leftovers", text, at_s)

    def _all_stopped(self, left: tuple[int, ...], at_s: float) -> None:
        try:
            self.read_output(finish=True)
        finally:
            if left and self.leave_behind:
                text = f"processes {list(left)} cannot be killed and are left to end in the background"
                self._note("left-behind", text, at_s)
                left = ()
            self.over = not left
            self._emit(AttemptStopped(at_s=at_s, attempt=self.number, left=left))

    def _reaper_lost(self, at_s: float) -> None:
        """Handles a killed reaper, with which its command died; other processes are found by environment."""
        marks = {"HOLDFAST_WORKER_DIR": str(self.folder)}
        killed = sweep(marks)
        left = marked(marks)
        text = f"the reaper was killed from outside; ended its processes ({counted(len(killed), 'process', 'processes')})"
        self._note("reaper-lost", text, at_s)
        self.command_code = -signal.SIGKILL
        for rank in self.ranks.values():
            rank.gone = rank.gone or not left
        self._emit(WorkerExited(at_s=at_s, attempt=self.number, worker=self.worker, code=self.command_code))
        self.over = not left
        self.stopping = True

    # What it writes ---------------------------------------------------------------------------------------

    def read_output(self, *, finish: bool = False) -> None:
        at_s = self._clock()
        chunks = self._follower.poll(at_s)
        if finish:
            chunks += self._follower.finish(at_s)
        if chunks:
            self.output_s = at_s
        for chunk in chunks:
            self._echo(chunk)
            self._output.note_repeats(chunk)
            self._count_steps(chunk, at_s)
        self.scan(chunks, now=finish)
        self._report_step(at_s)
        self._report_findings(self.steps.read(chunks, at_s, self.world_size, finish=finish))

    def _report_findings(self, findings: Sequence[StepFinding]) -> None:
        for one in findings:
            if not self.stopping:
                self._note(one.kind, one.text, numbers=one.numbers)

    def _log_bytes(self) -> dict[str, int]:
        """Returns the size of each output in bytes, without lines that repeat earlier ones."""
        return self._output.new_bytes(self._follower.sizes())

    def _count_steps(self, chunk: Chunk, at_s: float) -> None:
        for step in self._output.steps(chunk):
            self.step = step
            if self.first_step is None:
                self.first_step = step
                self.looks.sampler.signals.step_seen()
            elif step != self.first_step and not self._trains_noted:
                self._trains_noted = True
                self.running.trains()
            self.logs.step_seen(at_s)

    def scan(self, chunks: Sequence[Chunk], *, now: bool = False) -> None:
        """Matches signatures against new pieces of output, and reports faults that were not reported before."""
        at_s = self._clock()
        for text in self.logs.news(chunks, at_s, now=now):
            if not self.stopping:
                self._note("log", text, at_s)

    def _report_step(self, at_s: float, *, now: bool = False) -> None:
        """Reports the current step; `now`: even if one was just reported, because the attempt has failed."""
        if self.step in (None, self._step_sent) or self.stopping:
            return
        if not now and at_s - self._step_sent_s < STEP_EVENT_S:
            return
        self._step_sent, self._step_sent_s = self.step, at_s
        self._emit(StepReached(at_s=at_s, attempt=self.number, step=self.step))

    def report_last_step(self) -> None:
        """Reports the last step of a failed attempt, before its verdict."""
        self.read_output()
        self._report_step(self._clock(), now=True)

    def read_errors(self) -> None:
        """Reads uncaught exceptions that the shim wrote to files, while the processes of the ranks still exist."""
        for rank, error in self._error_files.fresh({rank: seen.pid for rank, seen in self.ranks.items()}):
            self._add_error(rank, error)

    def _add_error(self, rank: int, error: ErrorFile) -> None:
        if not self.stopping:
            self.looks.hurry_to_failure()
        at_s = self._clock.of_wall(error.time)
        lines = [line.encode() for line in (error.traceback or f"{error.type}: {error.message}").splitlines()]
        self.scan([Chunk(f"rank-{rank}.error.json", self._clock(), 0, lines)])
        self.errors[rank] = ErrorRecord(
            rank=rank,
            worker=self.worker,
            type=error.type,
            message=error.message,
            frame=error.frame,
            at_s=at_s,
        )
        if self.stopping:
            return
        self._report_step(self._clock(), now=True)
        reason = f"{error.type}: {error.message}".splitlines()[0][:200]
        event = RankExited(
            at_s=self._clock(), attempt=self.number, worker=self.worker, rank=rank, code=None, reason=reason
        )
        self._emit(event)

    # What it does -----------------------------------------------------------------------------------------

    def look(self, hang_settings: hang.Settings, platform_settings: platform_rule.Settings) -> Hang | None:
        """Checks the disk, and once a second samples all ranks and runs the detectors. Call it ten times a second.

        Returns a hang once its evidence is complete, or without evidence if collecting it takes too long; else None.
        """
        self._guard_disk(self._clock())
        if self.stopping or self.hang:
            return None
        self._note_unknown_ranks()
        samples = self.looks.samples_now()
        if samples is not None:
            sizes = self._log_bytes()
            if self._sampled is not None:
                self.looks.follow(samples)
                self._sampled(samples, sum(sizes.values()))
            else:
                self.looks.judge(samples, hang_settings, platform_settings, sizes)
                self._look_for_stragglers(samples)
        self.looks.poll_loops()
        return self.looks.found()

    def _note_unknown_ranks(self) -> None:
        """Reports once that no rank is named and no process looks like one."""
        if self.ranks or self._unknown_noted or not self._started:
            return
        if self._clock() - self.started_s < RANKS_WAIT_S:
            return
        self._unknown_noted = True
        text = f"no rank has been found in {RANKS_WAIT_S:.0f} s: no process reports one, no environment variable names one, and no process looks like one. Hangs are detected by output and the platforms' rule only, exits by the command's exit code, and no rank is named. Ranks are found by RANK or similar variables in the environment (docs/launchers.md)"
        self._note("ranks-unknown", text)

    def _look_for_stragglers(self, samples: tuple[RankSample, ...]) -> None:
        """Checks for slow ranks, but only while all ranks train: not during a start or a hang."""
        trains = self.first_step is not None or self.looks.operations() >= TRAINS_OPERATIONS
        living = {rank: seen.pid for rank, seen in self.ranks.items() if not seen.gone}
        if not trains or self.looks.is_looking or len(living) < len(self.ranks):
            return
        self._report_findings(self.steps.look(samples, living, self.step))

    def _note(
        self, finding: str, text: str, at_s: float | None = None, numbers: Numbers | None = None
    ) -> None:
        """Adds a line to the log without blocking. `at_s`: time of the line; None means now."""
        at_s = self._clock() if at_s is None else at_s
        noted = FindingNoted(
            at_s=at_s, finding=finding, text=text, attempt=self.number, numbers=numbers or {}
        )
        self._emit(noted)

    def _guard_disk(self, at_s: float) -> None:
        if self.over or at_s - self._guarded_s < self._space.next_look_s:
            return
        self._guarded_s = at_s
        text = self._space.look()
        if text:
            self._note("disk-full", text, at_s)

    def output_full(self) -> str:
        """Returns the output folder if its disk is full, else "". Exceptions cannot be recorded there either."""
        return str(self.folder) if self._space.is_full() else ""

    def _outputs(self) -> list[Path]:
        """Returns all output folders of the job, the oldest attempt first."""
        folders = sorted(self.folder.parent.parent.glob(f"attempt-*/{self.folder.name}"))
        return [
            path for folder in folders for path in sorted(folder.iterdir()) if SOURCE.fullmatch(path.name)
        ]

    def note_notes(self) -> None:
        for text in self._follower.notes:
            self._note("output", text)
        self._follower.notes.clear()
        while self.steps.notes:
            self._note("not-seen", self.steps.notes.popleft())
        if text := self.looks.sampler.signals.news():
            self._note("not-seen", text)

    def close(self) -> None:
        self.looks.close()
        self.memory.close()
        for seen in self.ranks.values():
            seen.reader.close()
        self._follower.close()

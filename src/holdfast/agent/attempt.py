"""One attempt on this worker, as seen from here: its processes, its output, its samples.

Turns what the reaper tells, what the logs say and what /proc shows into events. Decides nothing but
whether something hangs, by the pure detectors.
"""

import errno
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.agent.hang_scene import STATUS, HangScene, Person, Seen, usual_bytes
from holdfast.agent.launch import (
    AnyFact,
    CommandGone,
    LifelineLost,
    NoSocket,
    RankFound,
    RankGone,
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
from holdfast.agent.log_watch import LogWatch
from holdfast.agent.loop_watch import LoopWatch
from holdfast.agent.memory import MemoryWatch
from holdfast.agent.sampler import Sampler
from holdfast.core import hang, platform_rule
from holdfast.core.hang_verdict import joined
from holdfast.core.verdict import ErrorRecord, RankExit
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStartFailed,
    AttemptStopped,
    FindingNoted,
    RankExited,
    RankStarted,
    StepReached,
    WorkerExited,
)
from holdfast.model.samples import Hang, RankSample
from holdfast.observe.clock import JobClock
from holdfast.observe.follow import Chunk, Follower
from holdfast.observe.logindex import SOURCE
from holdfast.observe.procs import RankReader
from holdfast.observe.space import SpaceGuard
from holdfast.parsers.steps import StepReader

WORKER = 0  # one machine: the only worker
GUARD_S = 1.0
SAMPLES_MAX = 2000  # kept for the evidence: four minutes of eight ranks
STEP_EVENT_S = 1.0
LEFTOVERS_NAMED_MAX = 5
USUAL_OPERATIONS, USUAL_MAX = 20, 3  # completed collectives, ten times as many each time
SCENE_S_MAX = 4.0  # a look has deadlines of its own: 1.5 s at most
NOT_FOUND, NOT_RUNNABLE = 127, 126


class Rank(Struct):
    pid: int
    reader: RankReader
    code: int | None = None
    gone: bool = False


class ErrorFile(Struct, frozen=True):
    """What the shim writes of an uncaught exception (rank-N.error.json)."""

    rank: int
    pid: int
    type: str
    message: str
    frame: str = ""
    traceback: str = ""
    time: float = 0.0


class Attempt:
    def __init__(
        self,
        number: int,
        running: Running,
        clock: JobClock,
        emit: Callable[[AnyEvent], None],
        echo: Callable[[Chunk], None],
        learned: hang.Learned | None,
        logs: LogWatch,
        env: Mapping[str, str],
        *,
        from_end: bool = False,
        ranks_return: bool = False,
    ) -> None:
        self.number = number
        self.folder: Path = running.folder
        self.running = running
        self.logs = logs
        self.samples: deque[RankSample] = deque(maxlen=SAMPLES_MAX)
        self.ranks: dict[int, Rank] = {}
        self.world_size: int | None = None
        self.exits: list[RankExit] = []
        self.errors: dict[int, ErrorRecord] = {}
        self.command_code: int | None = None
        self.hang: Hang | None = None
        self.start_error = ""
        self.memory = MemoryWatch()
        self._ranks_return = ranks_return  # the launcher starts ranks again by itself
        self.step: int | None = None
        self.started_s = clock()
        self.stopping = False
        self.leave_behind = False  # what cannot be killed no longer holds up the next attempt
        self.over = False  # nothing of it is left
        self.watch = hang.start(learned)
        self.platform = platform_rule.Watch()
        self._clock = clock
        self._emit = emit
        self._echo = echo
        self._follower = Follower(self.folder, write_index=True, from_end=from_end)
        self._steps: dict[str, StepReader] = {}
        self._first_step: int | None = None
        self._step_told: int | None = None
        self._step_told_s = 0.0
        self._sampler = Sampler(self.folder, env, clock)
        self._loops = LoopWatch(self.folder, clock)
        self._scene: tuple[Hang, HangScene, float] | None = None  # a hang, its look, and since when
        self.usual_bytes: frozenset[int] = frozenset()
        self._usual_asked = 0
        self._failure: HangScene | None = None  # a look at why ranks have failed
        self._guarded_s = 0.0
        self._space = SpaceGuard(self.folder, self._outputs)
        self._folder_changed_ns = 0
        self._unheard: deque[AnyFact] = deque()
        self._started = False
        self._left_ranks = False  # the command has ended well before its ranks
        self._signals: list[int] = []  # for a command that does not run yet

    # What the reaper tells --------------------------------------------------------------------------------

    def hear(self, facts: list[AnyFact]) -> None:
        """Takes in what is new, and what a fault of ours kept from being taken in the last time."""
        self._unheard += facts
        while self._unheard:
            self._one(self._unheard.popleft())

    def _one(self, fact: AnyFact) -> None:
        at_s = self._clock()
        match fact:
            case Started() | Released():
                self._pass_held_signals()
                self._emit(AttemptStarted(at_s=at_s, attempt=self.number))
            case StartFailed():
                self._not_started(fact, at_s)
            case RankFound():
                self._rank_found(fact, at_s)
            case RankGone():
                self._rank_gone(fact, at_s)
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
                text = f"the reaper has no socket ({fact.error}): this job cannot be attached to later"
                self._emit(FindingNoted(at_s=at_s, finding="no-socket", text=text, attempt=self.number))
            case ReaperFault():
                self._emit(FindingNoted(at_s=at_s, finding="reaper", text=fact.error, attempt=self.number))
            case Stopping() | LifelineLost():
                pass

    def signal(self, number: int) -> None:
        """Passes it on, once the command runs: a process on its way there would miss it."""
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
            at_s=at_s, attempt=self.number, worker=WORKER, code=code, reason=self.start_error
        )
        self._emit(failed)

    def _rank_found(self, fact: RankFound, at_s: float) -> None:
        if fact.rank in self.ranks and not self._ranks_return:
            return  # a helper that has outlived its rank carries the same RANK
        self.memory.rank_found(fact.pid)
        self.ranks[fact.rank] = Rank(pid=fact.pid, reader=RankReader(fact.pid, fact.rank))
        self.world_size = fact.world_size
        self.errors.pop(fact.rank, None)  # a launcher may start the same rank again
        started = RankStarted(at_s=at_s, attempt=self.number, worker=WORKER, rank=fact.rank, pid=fact.pid)
        self._emit(started)

    def _rank_gone(self, fact: RankGone, at_s: float) -> None:
        rank = self.ranks.get(fact.rank)
        if rank is not None and rank.pid == fact.pid:
            rank.gone, rank.code = True, fact.code
        if self.stopping:
            return
        self.exits.append(RankExit(rank=fact.rank, worker=WORKER, pid=fact.pid, code=fact.code, at_s=at_s))
        if fact.code:
            self._hurry_to_failure()
        self.read_errors()
        self._emit(RankExited(at_s=at_s, attempt=self.number, worker=WORKER, rank=fact.rank, code=fact.code))
        if self._left_ranks and not self.living:
            self._emit(WorkerExited(at_s=at_s, attempt=self.number, worker=WORKER, code=0))

    def _command_gone(self, code: int, at_s: float) -> None:
        living = self.living
        if code == 0 and living and not self.stopping:
            text = f"the command has ended with 0 and left ranks {living} running: they are waited for"
            self._emit(FindingNoted(at_s=at_s, finding="daemonised", text=text, attempt=self.number))
            self._left_ranks = True
            return
        if code == 0 and not self.stopping:
            self._note_leftovers(at_s)
        self._emit(WorkerExited(at_s=at_s, attempt=self.number, worker=WORKER, code=code))

    @property
    def living(self) -> list[int]:
        """The ranks that were found and are not gone."""
        return sorted(rank for rank, seen in self.ranks.items() if not seen.gone)

    @property
    def is_done(self) -> bool:
        """All ranks have ended well: what is still to come is the end of their launcher."""
        ended_well = [rank for rank in self.ranks.values() if rank.gone and rank.code == 0]
        return len(ended_well) == self.world_size

    def _note_leftovers(self, at_s: float) -> None:
        left = marked({"HOLDFAST_WORKER_DIR": str(self.folder)})
        if not left:
            return
        names = ", ".join(f"{pid} ({_command_name(pid)})" for pid in left[:LEFTOVERS_NAMED_MAX])
        more = f" and {len(left) - LEFTOVERS_NAMED_MAX} more" if len(left) > LEFTOVERS_NAMED_MAX else ""
        text = (
            f"the command has ended and left processes running: {names}{more}; they are ended now. "
            "A training is supervised as long as its command runs: keep it in the foreground"
        )
        self._emit(FindingNoted(at_s=at_s, finding="leftovers", text=text, attempt=self.number))

    def _all_stopped(self, left: tuple[int, ...], at_s: float) -> None:
        try:
            self.read_output(finish=True)
        finally:
            if left and self.leave_behind:
                text = f"processes {list(left)} cannot be killed and are left to end in the background"
                self._emit(FindingNoted(at_s=at_s, finding="left-behind", text=text, attempt=self.number))
                left = ()
            self.over = not left
            self._emit(AttemptStopped(at_s=at_s, attempt=self.number, left=left))

    def _reaper_lost(self, at_s: float) -> None:
        """Somebody killed the reaper: its command died with it, the rest is found by its environment."""
        marks = {"HOLDFAST_WORKER_DIR": str(self.folder)}
        killed = sweep(marks)
        left = marked(marks)
        text = f"the reaper was killed from outside; ended what it watched over ({len(killed)} processes)"
        self._emit(FindingNoted(at_s=at_s, finding="reaper-lost", text=text, attempt=self.number))
        self._emit(WorkerExited(at_s=at_s, attempt=self.number, worker=WORKER, code=-9))
        self.over = not left
        self.stopping = True

    # What it writes ---------------------------------------------------------------------------------------

    def read_output(self, *, finish: bool = False) -> None:
        at_s = self._clock()
        chunks = self._follower.poll(at_s)
        if finish:
            chunks += self._follower.finish(at_s)
        for chunk in chunks:
            self._echo(chunk)
            reader = self._steps.setdefault(chunk.source, StepReader())
            for line in chunk.lines:
                step = reader.feed(line)
                if step is not None:
                    self.step = step
                    if self._first_step is None:
                        self._first_step = step
                        self._sampler.signals.step_seen()
                    self.logs.step_seen(at_s)
        self.scan(chunks, now=finish)
        self._tell_step(at_s)

    def scan(self, chunks: Sequence[Chunk], *, now: bool = False) -> None:
        """Has signatures look at what was read, and tells which known faults are new."""
        at_s = self._clock()
        for text in self.logs.news(chunks, at_s, now=now):
            if not self.stopping:
                self._emit(FindingNoted(at_s=at_s, finding="log", text=text, attempt=self.number))

    def _tell_step(self, at_s: float) -> None:
        if self.step in (None, self._step_told) or self.stopping or at_s - self._step_told_s < STEP_EVENT_S:
            return
        self._step_told, self._step_told_s = self.step, at_s
        self._emit(StepReached(at_s=at_s, attempt=self.number, step=self.step))

    def read_errors(self) -> None:
        """Uncaught exceptions, known from inside the rank well before its process is gone."""
        try:
            changed_ns = os.stat(self.folder).st_mtime_ns
        except OSError:
            return
        if changed_ns == self._folder_changed_ns:
            return
        self._folder_changed_ns = changed_ns
        for rank in self.ranks:
            if rank not in self.errors:
                self._read_error(rank)

    def _read_error(self, rank: int) -> None:
        try:
            error = msgspec.json.decode(
                (self.folder / f"rank-{rank}.error.json").read_bytes(), type=ErrorFile
            )
        except (OSError, msgspec.MsgspecError):
            return
        if error.pid != self.ranks[rank].pid:
            return
        self._hurry_to_failure()
        at_s = self._clock.of_wall(error.time)
        lines = [line.encode() for line in (error.traceback or f"{error.type}: {error.message}").splitlines()]
        self.scan([Chunk(f"rank-{rank}.error.json", self._clock(), 0, lines)])
        self.errors[rank] = ErrorRecord(
            rank=rank, worker=WORKER, type=error.type, message=error.message, frame=error.frame, at_s=at_s
        )
        if self.stopping:
            return
        reason = f"{error.type}: {error.message}".splitlines()[0][:200]
        event = RankExited(
            at_s=self._clock(), attempt=self.number, worker=WORKER, rank=rank, code=None, reason=reason
        )
        self._emit(event)

    # What it does -----------------------------------------------------------------------------------------

    def look(self, hang_settings: hang.Settings, platform_settings: platform_rule.Settings) -> Hang | None:
        """Ten times a second: the disk, and once a second samples of all ranks, and what the detectors say of them.

        A hang is given once it has been looked at from all sides, or as it is where that takes too long.
        """
        self._guard_disk(self._clock())
        if self.stopping or self.hang:
            return None
        samples = self._sampler.look(self.ranks, self.step)
        if samples is not None:
            self._judge(samples, hang_settings, platform_settings)
        suspects = {rank: self.ranks[rank].pid for rank in hang.to_sample(self.watch) if rank in self.ranks}
        self._loops.poll(suspects)
        return self._looked_at()

    def _judge(
        self,
        samples: tuple[RankSample, ...],
        hang_settings: hang.Settings,
        platform_settings: platform_rule.Settings,
    ) -> None:
        at_s = samples[0].at_s if samples else self._clock()
        self.samples += samples
        log_bytes = sum(self._follower.sizes().values())
        self.platform, finding = platform_rule.observe(
            self.platform, samples, at_s, platform_settings, utilisation=self._sampler.utilisation()
        )
        if finding is not None:
            text = f"platform rule: {finding.says}"
            self._emit(FindingNoted(at_s=at_s, finding="platform-hang", text=text, attempt=self.number))
        settings = msgspec.structs.replace(hang_settings, world_size=self.world_size)
        self.watch, found = hang.observe(
            self.watch,
            samples,
            at_s,
            settings,
            log_bytes=log_bytes,
            step=self.step,
            first_step=self._first_step,
            node_busy_s=self._sampler.node_busy_s,
            trends=self._loops.trends,
        )
        if self._usual_asked < USUAL_MAX and self._operations() >= USUAL_OPERATIONS * 10**self._usual_asked:
            self._usual_asked += 1
            threading.Thread(target=self._ask_usual, args=(self.living[:1],), daemon=True).start()
        if found is not None:
            self._sampler.signals.suspect()
            self._scene = (found, self.look_closer(at_s - found.since_s), at_s)
        elif self._scene is not None and not self.watch.reported:
            self._scene = None  # life has come back meanwhile: it was none

    def _operations(self) -> int:
        """Collectives that some rank has completed."""
        return max(
            (
                sum(max(0, group.completed) for group in track.groups or ())
                for track in self.watch.tracks.values()
            ),
            default=0,
        )

    def _ask_usual(self, ranks: Sequence[int]) -> None:
        """A few times: what a rank passes while all is well tells later who passed something else."""
        for rank in ranks:
            self.usual_bytes |= usual_bytes(self.folder, rank)

    def look_closer(self, stalled_s: float | None) -> HangScene:
        """Begins to look at all ranks: flight records, stacks. `stalled_s` None: ranks have failed."""
        scene = HangScene(
            self.folder, self._people(), self.watch.tracks, self._last_words(), self.world_size, stalled_s
        )
        scene.start()
        return scene

    def _looked_at(self) -> Hang | None:
        """The hang, once its look is over."""
        if self._scene is None:
            return None
        found, scene, since_s = self._scene
        if not scene.is_done and self._clock() - since_s < SCENE_S_MAX:
            return None
        self._scene = None
        seen = scene.result if scene.is_done else Seen(None)
        for text in seen.notes:
            self._emit(FindingNoted(at_s=self._clock(), finding="hang", text=text, attempt=self.number))
        return joined(found, seen.located, seen.stacks)

    def _hurry_to_failure(self) -> None:
        """At once: a launcher ends the other ranks within a tenth of a second, and what they know goes with them."""
        if self.has_collectives and not self.stopping and self._scene is None and self._failure is None:
            self._failure = self.look_closer(None)

    def look_at_failure(self) -> Seen | None:
        """What the ranks that have failed left, and what the others were at; begun by the first call. None: not yet."""
        if self._failure is None:
            self._failure = self.look_closer(None)
        return self._failure.again(self._people(), self._last_words()) if self._failure.is_done else None

    def _people(self) -> list[Person]:
        """A rank that said goodbye left by itself, whatever ended it in the end; one that its launcher ended after
        another had failed did not fail."""
        found = []
        for number, rank in sorted(self.ranks.items()):
            left = number not in self.errors and (self.folder / f"rank-{number}.{STATUS}").exists()
            left = left and (rank.gone or not self._ranks_return)  # it may be of the rank's life before
            was_ended = rank.code == -signal.SIGTERM and bool(self.errors or self._failed_before(number))
            code = 0 if left else None if was_ended else rank.code
            found.append(Person(number, rank.pid, rank.gone or left, code, was_ended and not left))
        return found

    def _failed_before(self, rank: int) -> bool:
        """Another one did, on its own."""
        return any(done.rank != rank and done.code not in (0, -signal.SIGTERM) for done in self.exits)

    def _last_words(self) -> dict[int, str]:
        return {number: f"{error.type}: {error.message}" for number, error in self.errors.items()}

    @property
    def has_collectives(self) -> bool:
        """Some rank has told of its process groups."""
        return any(track.groups is not None for track in self.watch.tracks.values())

    @property
    def is_looking(self) -> bool:
        """A hang has been found and is being looked at."""
        return self._scene is not None

    def _guard_disk(self, at_s: float) -> None:
        if self.over or at_s - self._guarded_s < GUARD_S:
            return
        self._guarded_s = at_s
        text = self._space.look()
        if text:
            self._emit(FindingNoted(at_s=at_s, finding="disk-full", text=text, attempt=self.number))

    def _outputs(self) -> list[Path]:
        """All output of the job so far, the oldest attempt first."""
        folders = sorted(self.folder.parent.parent.glob(f"attempt-*/{self.folder.name}"))
        return [
            path for folder in folders for path in sorted(folder.iterdir()) if SOURCE.fullmatch(path.name)
        ]

    def note_notes(self) -> None:
        for text in self._follower.notes:
            self._emit(FindingNoted(at_s=self._clock(), finding="output", text=text, attempt=self.number))
        self._follower.notes.clear()
        if text := self._sampler.signals.news():
            self._emit(FindingNoted(at_s=self._clock(), finding="not-seen", text=text, attempt=self.number))

    def close(self) -> None:
        self._sampler.close()
        self._loops.close()
        for seen in self.ranks.values():
            seen.reader.close()
        self._follower.close()


def _command_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "gone"

"""Samples the ranks of one attempt once a second, runs the detectors, and collects evidence on hangs and failed
ranks.

Decides only whether ranks hang, by the pure detectors. Never waits.
"""

import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from holdfast.agent.watch.hang_scene import STATUS, HangScene, Person, Seen, goodbye_s, usual_bytes
from holdfast.agent.watch.loops import LoopWatch
from holdfast.agent.watch.sampler import Sampler
from holdfast.core.hang import detect as hang
from holdfast.core.hang import platform_rule
from holdfast.core.hang.culprits import is_debugged, ranks_named
from holdfast.core.hang.tracks import RankTrack, follow
from holdfast.core.hang.verdict import joined
from holdfast.model.failures import ErrorRecord, RankExit
from holdfast.model.samples import Hang, RankSample, StackTrend
from holdfast.observe.processes.procs import RankReader

SAMPLES_MAX = 2000  # kept for the evidence: four minutes of eight ranks
USUAL_OPERATIONS, USUAL_MAX = 20, 3  # completed collectives, ten times as many each time
MAIN = 0  # the first training of a command
DEVICE_IDLE_PERCENT = 1.0
SCENE_S_MAX = 4.0  # a look has deadlines of its own: 3 s at most


class Rank(Struct):
    """A rank of the attempt as it is sampled. `local_rank`: its number within its worker; None if unknown."""

    pid: int
    reader: RankReader
    local_rank: int | None = None
    code: int | None = None
    gone: bool = False
    world: int = 0  # of several trainings that run side by side in one command


class Watched(Protocol):
    """Interface to an attempt, as far as sampling its ranks needs it."""

    folder: Path
    ranks: dict[int, Rank]
    world_size: int | None
    world_sizes: dict[int, int | None]
    exits: list[RankExit]
    errors: dict[int, ErrorRecord]
    step: int | None
    first_step: int | None

    @property
    def living(self) -> list[int]: ...


class Looks:
    """Samples of the ranks of one attempt, and examinations of its hangs and failures.

    `note`: receives each finding as its kind and text. `ranks_return`: the launcher restarts ranks itself.
    """

    def __init__(
        self,
        attempt: Watched,
        clock: Callable[[], float],
        note: Callable[[str, str], None],
        learned: hang.Learned | None,
        env: Mapping[str, str],
        *,
        ranks_return: bool,
    ) -> None:
        self.samples: deque[RankSample] = deque(maxlen=SAMPLES_MAX)
        self.watches = {MAIN: hang.start(learned)}
        self._scene_world = MAIN
        self._device_busy_s: float | None = None
        self.platform = platform_rule.Watch()
        self.usual_bytes: frozenset[int] = frozenset()
        self.sampler = Sampler(attempt.folder, env, clock)
        self.asked_to_sample: tuple[int, ...] = ()  # by the controller, which judges the ranks of all workers
        self._attempt = attempt
        self._clock = clock
        self._note = note
        self._ranks_return = ranks_return
        self._loops = LoopWatch(attempt.folder, clock)
        self._scene: tuple[Hang, HangScene, float] | None = None  # a hang, its look, and since when
        self._usual_asked = 0
        self._failure: HangScene | None = None  # a look at why ranks have failed

    def samples_now(self) -> tuple[RankSample, ...] | None:
        """Returns samples of all ranks, once a second; None if they are not due yet."""
        return self.sampler.look(self._attempt.ranks, self._attempt.step)

    def poll_loops(self) -> None:
        """Takes stack samples of ranks that may be in an endless loop. Call it ten times a second."""
        ranks, tracks = self._attempt.ranks, self.tracks
        suspects = (rank for watch in self.watches.values() for rank in hang.to_sample(watch))
        wanted = [rank for rank in (*suspects, *self.asked_to_sample) if rank in ranks]
        threads = {rank: tracks[rank].last.thread if rank in tracks else 0 for rank in wanted}
        self._loops.poll({rank: (ranks[rank].pid, threads[rank]) for rank in wanted})

    @property
    def trends(self) -> tuple[StackTrend, ...]:
        """Returns, for each rank that was sampled for an endless loop, how its stacks changed."""
        return tuple(self._loops.trends.values())

    def follow(self, samples: tuple[RankSample, ...]) -> None:
        """Stores the samples of each rank without judging them, because the controller compares all
        workers.
        """
        self.samples += samples
        tracks = {one.rank: follow(self.watch.tracks.get(one.rank), one) for one in samples}
        self.watches[MAIN] = msgspec.structs.replace(self.watch, tracks=tracks)
        self._learn_usual()

    def judge(
        self,
        samples: tuple[RankSample, ...],
        hang_settings: hang.Settings,
        platform_settings: platform_rule.Settings,
        log_bytes: Mapping[str, int],
    ) -> None:
        """Runs the hang detectors on new samples, and keeps what they find. `log_bytes`: size of all output
        so far, by file name.

        Trainings that run side by side are judged separately, each by the output of its own ranks.
        """
        at_s = samples[0].at_s if samples else self._clock()
        self.samples += samples
        self.platform, finding = platform_rule.observe(
            self.platform, samples, at_s, platform_settings, utilisation=self.sampler.utilisation()
        )
        if finding is not None:
            self._note("platform-hang", f"platform rule: {finding.says}")
        self._note_devices(at_s)
        worlds: dict[int, list[RankSample]] = {}
        for one in samples:
            worlds.setdefault(self._attempt.ranks[one.rank].world, []).append(one)
        if len(worlds) > 1:
            for world, part in worlds.items():
                names = [f"rank-{one.rank}.log" for one in part]
                own_bytes = sum(log_bytes.get(name, 0) for name in names)
                self._judge_world(world, part, at_s, hang_settings, own_bytes)
        else:
            self._judge_world(min(worlds, default=0), samples, at_s, hang_settings, sum(log_bytes.values()))
        self._learn_usual()

    def _judge_world(
        self,
        world: int,
        samples: Sequence[RankSample],
        at_s: float,
        hang_settings: hang.Settings,
        log_bytes: int,
    ) -> None:
        settings = msgspec.structs.replace(
            hang_settings, world_size=self._attempt.world_sizes.get(world, self._attempt.world_size)
        )
        steps_count = world == MAIN  # the log's steps are those of the first training
        watch, found = hang.observe(
            self.watches.get(world) or hang.start(),
            samples,
            at_s,
            settings,
            log_bytes=log_bytes,
            step=self._attempt.step if steps_count else None,
            first_step=self._attempt.first_step if steps_count else None,
            node_busy_s=self.sampler.node_busy_s,
            device_busy_s=self._device_busy_s,
            trends=self._loops.trends,
        )
        self.watches[world] = watch
        if found is not None:
            self.sampler.signals.suspect()
            self._scene = (found, self.look_closer(at_s - found.since_s), at_s)
            self._scene_world = world
        elif self._scene is not None and self._scene_world == world and not watch.reported:
            self._scene = None  # life has come back meanwhile: it was none

    def _note_devices(self, at_s: float) -> None:
        if any(one.percent > DEVICE_IDLE_PERCENT for one in self.sampler.utilisation()):
            self._device_busy_s = at_s

    @property
    def watch(self) -> hang.Watch:
        """Returns the state of the hang detector of the first training."""
        return self.watches[MAIN]

    @property
    def tracks(self) -> dict[int, RankTrack]:
        """Returns the recent progress of each rank of all trainings, as the hang detector follows it."""
        return {rank: track for watch in self.watches.values() for rank, track in watch.tracks.items()}

    def operations(self) -> int:
        """Returns the number of collectives that at least one rank has completed."""
        return max(
            (sum(max(0, group.completed) for group in track.groups or ()) for track in self.tracks.values()),
            default=0,
        )

    def _learn_usual(self) -> None:
        if self._usual_asked < USUAL_MAX and self.operations() >= USUAL_OPERATIONS * 10**self._usual_asked:
            self._usual_asked += 1
            threading.Thread(target=self._ask_usual, args=(self._attempt.living[:1],), daemon=True).start()

    def _ask_usual(self, ranks: Sequence[int]) -> None:
        """Records sizes of collectives a few times while the ranks are healthy, to find a different size
        later.
        """
        for rank in ranks:
            self.usual_bytes |= usual_bytes(self._attempt.folder, rank)

    def look_closer(self, stalled_s: float | None) -> HangScene:
        """Starts to examine all ranks: flight records, stacks. `stalled_s` None: ranks have failed."""
        attempt = self._attempt
        scene = HangScene(
            attempt.folder,
            self._people(),
            self.tracks,
            self._last_words(),
            attempt.world_size,
            stalled_s,
        )
        scene.start()
        return scene

    def found(self) -> Hang | None:
        """Returns the hang once its evidence is complete, or after a time limit without it."""
        if self._scene is None:
            return None
        found, scene, since_s = self._scene
        if not scene.is_done and self._clock() - since_s < SCENE_S_MAX:
            return None
        self._scene = None
        seen = scene.result if scene.is_done else Seen(None)
        for text in seen.notes:
            self._note("hang", text)
        held = [one.rank for one in seen.stacks if one.threads and is_debugged(one.threads[0].frames)]
        if held:
            self._note(
                "debugger", f"{ranks_named(held)}: a debugger holds the process; it does not count as a hang"
            )
            return None
        return joined(found, seen.located, seen.stacks)

    def hurry_to_failure(self) -> None:
        """Examines failed ranks at once: a launcher ends the other ranks within a tenth of a second."""
        if self.has_collectives and self._scene is None and self._failure is None:
            self._failure = self.look_closer(None)

    def look_at_failure(self) -> Seen | None:
        """Returns the evidence about failed ranks and the other ranks; None until it is complete.

        The first call starts the examination.
        """
        if self._failure is None:
            self._failure = self.look_closer(None)
        return self._failure.again(self._people(), self._last_words()) if self._failure.is_done else None

    def _people(self) -> list[Person]:
        """Returns the ranks with how they ended.

        A rank that began a normal exit left by itself, however it ended. A rank that its launcher ended after
        another failure did not fail.
        """
        found = []
        attempt, errors = self._attempt, self._attempt.errors
        for number, rank in sorted(self._attempt.ranks.items()):
            left = number not in errors and (attempt.folder / f"rank-{number}.{STATUS}").exists()
            left = left and (rank.gone or not self._ranks_return)  # it may be of the rank's life before
            was_ended = rank.code == -signal.SIGTERM and bool(errors or self._failed_before(number))
            code = 0 if left else None if was_ended else rank.code
            found.append(Person(number, rank.pid, rank.gone or left, code, was_ended and not left))
        return found

    def goodbyes(self) -> dict[int, float]:
        """Returns the ranks that began a normal exit without an error, and when, by the node's clock."""
        if self._ranks_return:  # it may be of a rank's life before
            return {}
        folder, errors = self._attempt.folder, self._attempt.errors
        said = {rank: goodbye_s(folder, rank) for rank in sorted(self._attempt.ranks) if rank not in errors}
        return {rank: at_s for rank, at_s in said.items() if at_s is not None}

    def _failed_before(self, rank: int) -> bool:
        """Returns whether another rank failed by itself before this one."""
        return any(
            done.rank != rank and done.code not in (0, -signal.SIGTERM) for done in self._attempt.exits
        )

    def _last_words(self) -> dict[int, str]:
        return {number: f"{error.type}: {error.message}" for number, error in self._attempt.errors.items()}

    @property
    def has_collectives(self) -> bool:
        """Returns whether a rank has reported its process groups, so that the progress of collectives is
        known.
        """
        return any(track.groups is not None for track in self.tracks.values())

    @property
    def is_looking(self) -> bool:
        """Returns whether a detected hang is being examined."""
        return self._scene is not None

    def close(self) -> None:
        self.sampler.close()
        self._loops.close()

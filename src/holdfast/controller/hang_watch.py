"""Detects hangs over all ranks of a job on many nodes.

Agents send samples; the detectors in `core` judge the ranks of all workers together. When they find a hang,
stacks and flight records are requested from all workers, and a thread compares them. Never blocks.
"""

import threading
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.flight.locate import locate
from holdfast.core.hang import detect as hang
from holdfast.core.hang import platform_rule
from holdfast.core.hang.verdict import joined
from holdfast.core.slices import Sliced
from holdfast.core.verdict.conclude import joined_scene
from holdfast.core.workers.acts import Act, Forget, Say, Send, Tell
from holdfast.core.workers.group import WorkerGroup
from holdfast.model.events import HangFound
from holdfast.model.nodes.workers import LookCloser, Looked, Sampled, SampleStacks
from holdfast.model.policy import Policy
from holdfast.model.samples import GONE_STATES, Hang, RankSample, Utilisation

FRESH_S = 3.5  # older samples are ignored: they come once a second, from a busy node a little late
LOOK_S = 5.0  # for the answers of all workers; each agent's own look takes 4 s at most
SENT_AGAIN_S = 10.0  # repeats which stacks to sample, for agents that were away


class Look(Struct):
    """A request for stacks and flight records of all workers. `answers`: the replies by worker.

    `result`: the hang, after the replies were compared; None before.
    """

    number: int
    attempt: int
    found: Hang
    since_s: float
    waits_for: set[int]
    answers: dict[int, Looked] = {}
    joining: bool = False
    result: Hang | None = None


class HangWatching:
    """Hang detector of a job on many nodes. `note`: receives each finding as its kind and a sentence."""

    def __init__(
        self,
        worker_group: WorkerGroup,
        policy: Policy,
        platform_hang_min: float,
        clock: Callable[[], float],
        note: Callable[[str, str], None],
    ) -> None:
        self.hang: Hang | None = None  # of this attempt
        self.watch = hang.start()
        self.world_size: int | None = None
        self.output_s: float | None = None  # when the output of a worker last grew
        self._worker_group = worker_group
        self._clock = clock
        self._note = note
        self._settings = hang.Settings(hang_timeout_s=policy.hang_timeout_s)
        self._platform_settings = platform_rule.Settings(detect_min=platform_hang_min)
        self._platform = platform_rule.Watch()
        self._attempt = 0
        self._last: dict[int, Sampled] = {}  # by worker
        self._looks = 0
        self._look: Look | None = None
        self._sampling: dict[str, tuple[int, ...]] = {}  # by node: whose stacks are being sampled
        self._sampling_sent_s = float("-inf")
        self._used: list[Utilisation] = []  # of devices, since the last look
        self._judging: Sliced[Hang | None] | None = None  # of the last tick that is not done yet

    @property
    def samples(self) -> tuple[RankSample, ...]:
        """Returns the last sample of each rank."""
        return tuple(sample for report in self._last.values() for sample in report.ranks)

    @property
    def is_looking(self) -> bool:
        """Returns whether stacks and flight records are being collected for a hang, or for a suspected
        one.
        """
        return self._look is not None or self.hang is not None

    def sampled(self, node: str, report: Sampled) -> None:
        """Stores the samples that an agent sent about one worker, with their times converted to the job's
        clock.
        """
        self._turn_to(self._worker_group.roster.team.attempt)
        if report.attempt != self._attempt or self._worker_group.roster.team.nodes.get(report.worker) != node:
            return
        before = self._last.get(report.worker)
        if before is None or report.at_s >= before.at_s:
            if report.log_bytes > (before.log_bytes if before is not None else 0):
                self.output_s = max(report.at_s, self.output_s or report.at_s)
            self._last[report.worker] = report
            self.world_size = report.world_size or self.world_size
            if report.used:
                self._used += (replace(one, device=f"{node} {one.device}") for one in report.used)

    def looked(self, node: str, report: Looked) -> None:
        look = self._look
        if look is None or (report.attempt, report.look) != (look.attempt, look.number):
            return
        look.answers[report.worker] = report
        look.waits_for.discard(report.worker)

    def tick(self, at_s: float) -> list[Act]:
        """Starts a comparison of all ranks, which `go_on` continues in small steps. To be called once a
        second.

        Returns messages and requests that follow from results (core/workers/acts.py).
        """
        self._turn_to(self._worker_group.roster.team.attempt)
        if self._is_settled:
            self._used.clear()
            self._judging = None
            return []
        if self._judging is not None:  # the machine is too slow
            return self._look_on(at_s)
        self._judging = self._judge(at_s)
        return []

    @property
    def is_busy(self) -> bool:
        """Returns whether `go_on` has work to do."""
        return self._judging is not None

    def go_on(self, at_s: float) -> list[Act]:
        """Does one step, about 10 ms, of the comparison that `tick` has started. Returns the orders that
        follow.
        """
        self._turn_to(self._worker_group.roster.team.attempt)
        judging, self._judging = self._judging, None  # the caller reports an exception in it
        if judging is None or self._is_settled:
            return []
        try:
            next(judging)
        except StopIteration as end:
            found: Hang | None = end.value
            acts = self._look_closer(found, at_s) if found is not None else []
            return acts + self._whom_to_sample(at_s) + self._look_on(at_s)
        self._judging = judging
        return []

    @property
    def _is_settled(self) -> bool:
        """Returns True if there is nothing to judge: the attempt is ending, or its hang is known."""
        team = self._worker_group.roster.team
        return team.over or team.stop_asked or self.hang is not None or not self._last

    def _turn_to(self, attempt: int) -> None:
        if attempt == self._attempt:
            return
        self._attempt = attempt
        self.watch = hang.start(hang.learned(self.watch))
        self._platform = platform_rule.Watch()
        self.hang, self._look, self._judging = None, None, None
        self._last, self._sampling, self._used = {}, {}, []

    # Judging ----------------------------------------------------------------------------------------------

    def _judge(self, at_s: float) -> Sliced[Hang | None]:
        """Judges all ranks by the samples that were known when it started."""
        fresh = self._fresh(at_s)
        samples = self._samples_of(fresh, at_s)
        if not samples:
            return None
        reports = list(self._last.values())  # of all nodes, also silent ones
        used, self._used = self._used, []
        is_whole = len(fresh) == len(self._worker_group.roster.team.nodes)
        if is_whole:
            self._platform, finding = platform_rule.observe(
                self._platform, samples, at_s, self._platform_settings, utilisation=used
            )
            if finding is not None:
                self._note("platform-hang", f"platform rule: {finding.says}")
        yield
        busy = [one.node_busy_s for one in reports if one.node_busy_s is not None]
        self.watch, found = yield from hang.observing(
            self.watch,
            samples,
            at_s,
            replace(self._settings, world_size=self.world_size),
            log_bytes=sum(one.log_bytes for one in reports),
            step=max((one.step for one in reports if one.step is not None), default=None),
            first_step=min((one.first_step for one in reports if one.first_step is not None), default=None),
            node_busy_s=max(busy) if len(busy) == len(reports) else None,
            trends={trend.rank: trend for one in fresh.values() for trend in one.trends},
        )
        if self._look is not None and not self.watch.reported:
            self._look = None  # the ranks moved on meanwhile: it was no hang
        return found

    def _fresh(self, at_s: float) -> dict[int, Sampled]:
        """Returns the reports of workers that are connected now; old samples of silent workers do not
        count.
        """
        exited = self._worker_group.roster.team.exited
        return {
            worker: report
            for worker, report in self._last.items()
            if worker in exited or at_s - report.at_s <= FRESH_S
        }

    def _samples_of(self, fresh: dict[int, Sampled], at_s: float) -> list[RankSample]:
        """Returns the samples of all ranks; those of a worker whose command has ended count as ended."""
        exited = self._worker_group.roster.team.exited
        samples: list[RankSample] = []
        for worker, report in fresh.items():
            if worker not in exited or at_s - report.at_s <= FRESH_S:
                samples += report.ranks
            else:
                samples += [
                    one if one.state in GONE_STATES else replace(one, state="X", at_s=at_s)
                    for one in report.ranks
                ]
        return samples

    def _whom_to_sample(self, at_s: float) -> list[Act]:
        """Requests stack samples from agents, on changes and at intervals, because such messages may be
        lost.
        """
        wanted: dict[str, list[int]] = {}
        ranks = hang.to_sample(self.watch)
        if ranks:
            nodes = self._worker_group.workers(self._attempt)
            for worker, report in self._last.items():
                mine = [one.rank for one in report.ranks if one.rank in ranks]
                if mine and worker in nodes:
                    wanted[nodes[worker]] = sorted(mine)
        ranks_of = {node: tuple(mine) for node, mine in wanted.items()}
        again = at_s - self._sampling_sent_s >= SENT_AGAIN_S
        acts: list[Act] = [
            Say(node, SampleStacks(attempt=self._attempt, ranks=ranks_of.get(node, ())))
            for node in {*ranks_of, *self._sampling}
            if ranks_of.get(node) != self._sampling.get(node) or (again and node in ranks_of)
        ]
        if acts:
            self._sampling_sent_s = at_s
        self._sampling = ranks_of
        return acts

    # A closer look ----------------------------------------------------------------------------------------

    def _look_closer(self, found: Hang, at_s: float) -> list[Act]:
        self._looks += 1
        nodes = self._worker_group.workers(self._attempt)
        self._look = Look(self._looks, self._attempt, found, at_s, set(nodes))
        ask = LookCloser(attempt=self._attempt, look=self._looks, stalled_s=at_s - found.since_s)
        base = self._look_id
        return [
            Send(node, self._worker_group.roster.order_id(f"{base}/{worker}"), ask)
            for worker, node in nodes.items()
        ]

    @property
    def _look_id(self) -> str:
        return f"attempt-{self._attempt}/look-{self._looks}"

    def _look_on(self, at_s: float) -> list[Act]:
        look = self._look
        if look is None:
            return []
        look.waits_for &= self._worker_group.workers(look.attempt).keys()
        if not look.joining and (not look.waits_for or at_s - look.since_s >= LOOK_S):
            look.joining = True
            thread = threading.Thread(
                target=self._join, args=(look, at_s - look.found.since_s), name="holdfast-hang", daemon=True
            )
            thread.start()
        if look.result is None:
            return []
        self._look = None
        self.hang = look.result
        for text in dict.fromkeys(note for one in look.answers.values() for note in one.notes):
            self._note("hang", text)
        event = HangFound(
            at_s=at_s,
            attempt=look.attempt,
            hang=self.hang.kind,
            culprits=self.hang.culprits,
            reason=self.hang.why,
        )
        nodes = self._worker_group.workers(look.attempt).values()
        return [Tell(event), *(Forget(node, self._look_id) for node in nodes)]

    def _join(self, look: Look, stalled_s: float) -> None:
        """Compares stacks and flight records in a thread, because those of thousands of ranks take a
        while.
        """
        try:
            look.result = self._concluded(look.found, list(look.answers.values()), stalled_s)
        except Exception as error:  # noqa: BLE001 - the hang is reported without it, never delayed
            text = f"comparing the ranks failed: {type(error).__name__}: {error}"
            look.result = replace(look.found, why=f"{look.found.why} ({text})")

    def _concluded(self, found: Hang, answers: Sequence[Looked], stalled_s: float) -> Hang:
        scene, lives = joined_scene(answers, self.world_size)
        located = (
            locate(scene.digests, self.world_size, lives, stalled_s=stalled_s) if scene.digests else None
        )
        return joined(found, located, [one.stacks for one in scene.stacks])

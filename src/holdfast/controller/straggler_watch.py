"""Detects ranks that are slower than the others of a job on many nodes, during training.

Agents report for each rank its progress in collectives, its logged steps, CPU throttling of its cgroups and,
on request, when it entered its collectives. The comparison in `core`, which is the same as on a single node,
names the rank or node that the others wait for. Never blocks; an internal error disables the detector for the
attempt.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from holdfast.core.slices import Sliced, pieces
from holdfast.core.stragglers.logged_steps import LoggedSteps
from holdfast.core.stragglers.records import Arrival, joined
from holdfast.core.stragglers.watch import StragglerWatch
from holdfast.core.workers.acts import Act, Say, Tell
from holdfast.core.workers.group import WorkerGroup
from holdfast.model.events import FindingNoted
from holdfast.model.nodes.workers import FetchRecords, RecordsReport, Sampled
from holdfast.model.samples import GONE_STATES
from holdfast.model.steps import StepFinding, Straggler

FRESH_S = 3.5  # older samples are ignored
TRAINS_OPERATIONS = 100  # completed collectives that count as training, if no log names a step
CLOCK_ERROR_S = 0.01  # error between nodes' clocks after the link has measured them
FETCH_S = 6.0  # for the answers of all workers
RANKS_ASKED_MAX = 256  # of a larger job: the suspects and some others
ENTRIES_MAX = 32_768  # of all ranks, joined in one tick
ENTRIES_AT_ONCE = 16_384  # processed in one tick
THROTTLED_EVERY_S = 4.0
REPORTS_AT_ONCE = 128  # each may hold some steps of eight ranks
NEWS_MAX = 200  # lines of one kind in one attempt


class Fetch(Struct):
    """A request for flight records. `waits_for`: numbers of the workers that have not responded."""

    since_s: float
    waits_for: set[int]
    answers: list[RecordsReport] = []


class StragglersWatching:
    """Detector of slow ranks of a job on many nodes.

    `is_looking`: returns whether a hang is being examined; ranks are then not reported as slow.
    """

    def __init__(self, worker_group: WorkerGroup, is_looking: Callable[[], bool] = lambda: False) -> None:
        self._worker_group = worker_group
        self._is_looking = is_looking
        self._turn_to(0)

    def _turn_to(self, attempt: int) -> None:
        self._attempt = attempt
        self._last: dict[int, Sampled] = {}  # by worker
        self._new: list[Sampled] = []
        self._comparing: Sliced[list[Act]] | None = None  # since the last tick
        self._throttled: dict[int, float] = {}
        self._throttled_s = float("-inf")
        self._nodes: dict[int, str] = {}
        self._peers: dict[int, str] = {}
        self._watch: StragglerWatch | None = None
        self._steps = LoggedSteps()
        self._asked: set[int] = set()  # workers; kept once asked, so that the same ranks are compared
        self._fetch: Fetch | None = None
        self._arrivals: deque[Arrival] = deque()
        self._news: dict[str, int] = {}
        self._trains = False
        self._broken = False

    @property
    def now(self) -> tuple[Straggler, ...]:
        """Returns the ranks and nodes that are slower than the others now."""
        return self._watch.reported if self._watch is not None else ()

    def sampled(self, node: str, report: Sampled) -> None:
        """Stores the samples that an agent sent about one worker, with their times converted to the job's
        clock.
        """
        team = self._worker_group.roster.team
        if team.attempt != self._attempt:
            self._turn_to(team.attempt)
        if report.attempt != self._attempt or team.nodes.get(report.worker) != node or self._broken:
            return
        before = self._last.get(report.worker)
        if before is not None and report.at_s <= before.at_s:
            return
        self._last[report.worker] = report
        self._new.append(report)
        self._throttled |= report.throttled_s

    def records(self, node: str, report: RecordsReport) -> None:
        """Stores the flight records that an agent sent about one worker, with their times converted to the
        job's clock.
        """
        fetch = self._fetch
        if fetch is None or report.attempt != self._attempt:
            return
        if (
            self._worker_group.roster.team.nodes.get(report.worker) == node
            and report.worker in fetch.waits_for
        ):
            fetch.waits_for.discard(report.worker)
            fetch.answers.append(report)

    def tick(self, at_s: float) -> list[Act]:
        """Starts a comparison of all ranks to find slow ones, if there is new data and no comparison is
        running.

        Cancels the comparison if the job is ending. `go_on` computes it in small steps. Returns the orders
        that follow from results. To be called once a second.
        """
        team = self._worker_group.roster.team
        if team.attempt != self._attempt:
            self._turn_to(team.attempt)
        if self._broken or team.over or team.stop_asked:
            self._new, self._comparing = [], None
        if self._new and self._comparing is None:
            new, self._new = self._new, []
            self._comparing = self._compare(new, at_s)
        return []

    @property
    def is_busy(self) -> bool:
        """Returns whether `go_on` has work to do."""
        return self._comparing is not None

    def go_on(self, at_s: float) -> list[Act]:
        """Does one step, about 10 ms, of the comparison that `tick` has started. Returns the orders that
        follow.
        """
        team = self._worker_group.roster.team
        if team.attempt != self._attempt:
            self._turn_to(team.attempt)
        comparing, self._comparing = self._comparing, None
        if comparing is None or team.over or team.stop_asked:
            return []
        self._broken = True  # after an exception, which the caller reports, the comparison stays off
        acts: list[Act] = []
        try:
            next(comparing)
            self._comparing = comparing
        except StopIteration as end:
            acts = end.value
        self._broken = False
        return acts

    # Comparing --------------------------------------------------------------------------------------------

    def _compare(self, new: Sequence[Sampled], at_s: float) -> Sliced[list[Act]]:
        """Compares ranks only while all train; at a start, or while ranks wait for a dead one, their times
        mean nothing.
        """
        if not self._all_train(at_s):
            return []
        watch = self._watched()
        for part in pieces(new, REPORTS_AT_ONCE):
            for report in part:
                for one in report.steps:
                    self._steps.add(one, watch)
            yield
        if self._is_looking():
            return []
        throttled: Mapping[int, float] = {}
        if at_s - self._throttled_s >= THROTTLED_EVERY_S:
            self._throttled_s, throttled = at_s, self._throttled
        yield from watch.looking([sample for report in new for sample in report.ranks], throttled)
        self._fetch_on(watch, at_s)
        acts: list[Act] = []
        if self._fetch is None and not self._arrivals and len(self._nodes) > 1 and watch.wants_records(at_s):
            acts += self._ask(watch, at_s)
        if self._arrivals:
            return acts  # part of the fetched records would mislead
        step = max((one.step for one in self._last.values() if one.step is not None), default=None)
        return acts + [act for one in watch.findings(step, at_s) for act in self._acts(one, at_s)]

    def _all_train(self, at_s: float) -> bool:
        reports = self._last.values()
        if len(self._last) < len(self._worker_group.roster.team.nodes):
            return False
        if any(at_s - one.at_s > FRESH_S or not one.ranks for one in reports):
            return False
        self._trains = self._trains or any(
            one.first_step is not None
            or any(group.completed >= TRAINS_OPERATIONS for rank in one.ranks for group in rank.groups or ())
            for one in reports
        )
        return self._trains and not any(rank.state in GONE_STATES for one in reports for rank in one.ranks)

    def _watched(self) -> StragglerWatch:
        """Returns the comparison; it starts over if the number of ranks has changed."""
        ranks = sum(len(one.ranks) for one in self._last.values())
        if self._watch is None or ranks != len(self._nodes):
            homes = self._worker_group.roster.team.nodes
            self._nodes = {
                rank.rank: homes[worker] for worker, one in self._last.items() for rank in one.ranks
            }
            self._begin()
        assert self._watch is not None
        return self._watch

    def _begin(self) -> None:
        self._watch = StragglerWatch(
            nodes=self._nodes, peers=self._peers, apart=True, clock_error_s=CLOCK_ERROR_S
        )

    def _acts(self, one: StepFinding, at_s: float) -> list[Act]:
        count = self._news[one.kind] = self._news.get(one.kind, 0) + 1
        if count > NEWS_MAX:
            return []
        numbers = one.numbers if one.step is None else {**one.numbers, "step": one.step}
        return [
            Tell(
                FindingNoted(
                    at_s=at_s, finding=one.kind, text=one.text, attempt=self._attempt, numbers=numbers
                )
            )
        ]

    # Flight records ---------------------------------------------------------------------------------------

    def _ask(self, watch: StragglerWatch, at_s: float) -> list[Act]:
        homes = self._worker_group.workers(self._attempt)
        suspects = set(watch.suspects())
        ranks = 0
        for worker in sorted(homes, key=lambda worker: worker * 2654435761 % len(homes)):  # without a period
            mine = [one.rank for one in self._last[worker].ranks] if worker in self._last else []
            if ranks + len(mine) <= RANKS_ASKED_MAX or not suspects.isdisjoint(mine):
                self._asked.add(worker)
            ranks += len(mine)
        asked = self._asked & homes.keys()
        of_each = ENTRIES_MAX // max(1, sum(len(self._last[worker].ranks) for worker in asked))
        self._fetch = Fetch(at_s, set(asked))
        ask = FetchRecords(attempt=self._attempt, most=max(64, of_each))
        return [Say(homes[worker], ask) for worker in sorted(asked)]

    def _fetch_on(self, watch: StragglerWatch, at_s: float) -> None:
        self._take_in(watch)
        fetch = self._fetch
        if fetch is None or (fetch.waits_for and at_s - fetch.since_s < FETCH_S):
            return
        self._fetch = None
        peers = {rank: name for one in fetch.answers for rank, name in one.peers.items()}
        if peers and not self._peers:  # which ranks do the same work is known only now
            self._peers = peers
            self._begin()
        self._arrivals.extend(joined([one for answer in fetch.answers for one in answer.entered]))

    def _take_in(self, watch: StragglerWatch) -> None:
        room = ENTRIES_AT_ONCE
        while self._arrivals and room > 0:
            one = self._arrivals.popleft()
            room -= len(one.at)
            watch.arrivals(one.group, one.sequence, one.at, device=one.device)

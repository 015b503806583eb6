"""Explains long steps: checkpoints, evaluation, compilation, periodic work. Pure."""

from collections import Counter
from statistics import median
from typing import get_args

from msgspec import Struct

from holdfast.model.steps import MarkKind, Phase, PhaseKind, Spike

SPIKE_RATIO = 1.8  # minimum ratio of a spike to the usual step, without another slow step nearby
MARKED_RATIO = 1.25  # minimum ratio of a long step that a log line explains
SAMPLES_MAX = 512  # recorded for each kind: the first half and the newest half
PERIODS_MAX = 3  # reported for one run
PERIODIC_MIN = 3  # spikes from which a period is recognised
PERIODIC_SHARE = 0.6  # minimum part of the spikes predicted by a period that exist
GROWN_RATIO, GROWN_MIN = (
    1.5,
    5,
)  # minimum ratio of pauses that became longer, and their minimum number before and after
SINGLE_MAX = 50  # spikes listed separately
RUNS_MAX = 100  # runs with separate phases
PHASE_OF: dict[str, PhaseKind] = {
    kind: kind for kind in get_args(PhaseKind) if kind in get_args(MarkKind)
}  # the dump of a profiler, or a start, is no phase


class _Sample:
    """Values by step in bounded memory: the first and the newest ones, and the number of all."""

    __slots__ = ("count", "first_step", "last_step", "newest", "oldest")

    def __init__(self) -> None:
        self.count = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.oldest: list[tuple[int, float]] = []
        self.newest: list[tuple[int, float]] = []

    def add(self, step: int, value_s: float) -> None:
        if not self.count:
            self.first_step = step
        self.count += 1
        self.last_step = step
        half = SAMPLES_MAX // 2
        if len(self.oldest) < half:
            self.oldest.append((step, value_s))
            return
        self.newest.append((step, value_s))
        if len(self.newest) > 2 * half:
            del self.newest[:half]

    def pairs(self) -> list[tuple[int, float]]:
        return [*self.oldest, *self.newest[-SAMPLES_MAX // 2 :]]


class Grown(Struct, frozen=True, kw_only=True):
    """Pauses of one kind (checkpoints or evaluations) that have become longer since step `first`."""

    run: int
    kind: str
    first: int
    count: int
    before_s: float
    after_s: float


class PhaseModel:
    """A collector of the long steps in one log, and of the log lines that explain them."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[int, str], _Sample] = {}  # by run and kind; "": a spike that nothing explains
        self._usual: dict[int, float] = {}  # usual step time in seconds, by run

    def add(self, run: int, step: int, value_s: float, usual_s: float, marks: list[MarkKind]) -> str:
        """Adds a record and returns its kind: "step", the kind named by a log line before it, or "" for an
        unexplained spike.
        """
        kind = "step"
        if marks and value_s > MARKED_RATIO * usual_s:
            kind = marks[-1]
        elif value_s > SPIKE_RATIO * usual_s:
            kind = ""
        self.count(run, step, value_s, kind)
        if kind == "step":
            self._usual[run] = usual_s
        return kind

    def count(self, run: int, step: int, value_s: float, kind: str) -> None:
        """Adds a long step whose cause is known."""
        key = (run, kind)
        sample = self._kinds.get(key)
        if sample is None:
            if len(self._kinds) >= RUNS_MAX * 8:
                return
            sample = self._kinds[key] = _Sample()
        sample.add(step, value_s)

    def grown(self) -> list[Grown]:
        """Returns the kinds of pauses (checkpoints, evaluations) that take longer than they did before."""
        found = []
        for (run, kind), sample in self._kinds.items():
            pairs = sample.pairs() if kind in ("checkpoint", "evaluation") else []
            cut = _grown_at([value for _, value in pairs])
            if cut is None:
                continue
            found.append(
                Grown(
                    run=run,
                    kind=kind,
                    first=pairs[cut][0],
                    count=len(pairs) - cut,
                    before_s=median(value for _, value in pairs[:cut]),
                    after_s=median(value for _, value in pairs[cut:]),
                )
            )
        return found

    def long_steps(self) -> dict[tuple[int, int], tuple[PhaseKind, float]]:
        """Returns the long steps that a phase such as a checkpoint explains: its kind and the duration in seconds,
        by number of the run and step. If a kind has too many to keep, its first and its newest ones.
        """
        return {
            (run, step): (PHASE_OF[kind], value)
            for (run, kind), sample in self._kinds.items()
            if kind != "step" and kind in PHASE_OF
            for step, value in sample.pairs()
        }

    def phases(self) -> tuple[Phase, ...]:
        """Returns the phases of the training so far, such as checkpoints, in order."""
        found = []
        for (_, kind), sample in self._kinds.items():
            phase_kind: PhaseKind | None = (
                "step" if kind == "step" else "warmup" if kind == "warmup" else PHASE_OF.get(kind)
            )
            if phase_kind is None:
                continue
            found.append(
                Phase(
                    kind=phase_kind,
                    first_step=sample.first_step,
                    last_step=sample.last_step,
                    count=sample.count,
                    median_s=median(value for _, value in sample.pairs()),
                )
            )
        return tuple(sorted(found, key=lambda phase: (phase.first_step or 0, phase.last_step or 0)))

    def spikes(self) -> tuple[Spike, ...]:
        """Returns single long steps in order; those that recur periodically as one."""
        found: list[Spike] = []
        for (run, kind), sample in self._kinds.items():
            usual = self._usual.get(run)
            if kind in ("step", "warmup") or not usual:
                continue
            found.extend(_grouped(sample, run, kind, usual))
        return tuple(sorted(found, key=lambda spike: (spike.run, spike.first_step or 0)))


def _grown_at(values: list[float]) -> int | None:
    """Returns the index from which on all values lie above all earlier ones; None if there is none.

    With five values on either side, this happens by chance once in 252 times.
    """
    highest = 0.0
    lowest_after = [float("inf")] * (len(values) + 1)
    for place in range(len(values) - 1, -1, -1):
        lowest_after[place] = min(values[place], lowest_after[place + 1])
    for place, value in enumerate(values):
        if GROWN_MIN <= place <= len(values) - GROWN_MIN and lowest_after[place] > highest:
            if median(values[place:]) >= GROWN_RATIO * median(values[:place]):
                return place
        highest = max(highest, value)
    return None


def _grouped(sample: _Sample, run: int, kind: str, usual_s: float) -> list[Spike]:
    """Returns the spikes of one kind: periods first, then single ones, or all single ones as one if there are
    many.
    """
    left = dict(sample.pairs())
    kept = len(left)
    found = []
    for _ in range(PERIODS_MAX):
        period, members = _period(sorted(left))
        if period is None:
            break
        times = [left.pop(step) for step in members]
        # Only the first and newest spikes of a long log are recorded: the total is scaled accordingly.
        count = len(members) if kept == sample.count else max(round(sample.count * len(members) / kept), 1)
        found.append(_spike(members[0], count, times, usual_s, run, kind, period))
    if len(left) > SINGLE_MAX:
        return [
            *found,
            _spike(min(left), sample.count - kept + len(left), list(left.values()), usual_s, run, kind),
        ]
    return [*found, *(_spike(step, 1, [value], usual_s, run, kind) for step, value in left.items())]


def _spike(
    first: int, count: int, times: list[float], usual_s: float, run: int, kind: str, period: int | None = None
) -> Spike:
    middle = median(times)
    return Spike(
        first_step=first,
        count=count,
        time_s=middle,
        ratio=middle / usual_s,
        period=period,
        kind=kind,
        run=run,
    )


def _period(steps: list[int]) -> tuple[int | None, list[int]]:
    """Returns the distance at which most of these steps follow one another, and these steps; None without a
    period.
    """
    if len(steps) < PERIODIC_MIN:
        return None, []
    there = set(steps)
    distances = Counter(
        after - steps[place] for place in range(len(steps)) for after in steps[place + 1 : place + 4]
    )
    best: tuple[int, int, list[int]] = (0, 0, [])
    for period, seen in distances.most_common(8):
        if seen < PERIODIC_MIN - 1 or period < 2:
            continue
        phase, _ = Counter(step % period for step in steps if step + period in there).most_common(1)[0]
        members = [step for step in steps if step % period == phase]
        predicted = _predicted(members, period)
        if len(members) >= PERIODIC_MIN and len(members) >= PERIODIC_SHARE * predicted:
            best = max(best, (len(members), -period, members), key=lambda found: found[:2])
    return (-best[1], best[2]) if best[2] else (None, [])


def _predicted(members: list[int], period: int) -> int:
    """Returns how many spikes the period predicts between first and last, without the gap in the recorded
    ones.
    """
    gaps = [after - before for before, after in zip(members, members[1:], strict=False)]
    hole = max(gaps, default=0)
    whole = members[-1] - members[0] - (hole - period if len(members) >= SAMPLES_MAX // 2 else 0)
    return whole // period + 1

"""Compares the own times of ranks that should take equally long, step by step.

Pure, one pass, bounded memory.

Subtracting each step's median removes what all ranks share (a long batch, a checkpoint). Each rank's excess
over its peers, less a tolerance, is summed (CUSUM), with single long steps clipped. If a sum exceeds a limit
that grows with the number of ranks, the rank is examined: since when, how much, and whether it stands out
from the usual spread.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from itertools import islice
from math import isfinite, sqrt
from operator import itemgetter
from statistics import median

from msgspec import Struct

from holdfast.core.stragglers.limits import StragglerSettings, cusum_limit, outlier_limit

SAMPLE = 511  # sample of ranks for a step's median if there are more: error 0.06 sigma, equal for all
LARGE = 2048  # from this number of ranks on, only every other step is examined
NOISE_RANKS = 64
NOISE_KEPT = 512
NOISE_MIN = 0.002
NOISE_FIRST = 0.05  # assumed until the noise has been measured
BLOCK = 8  # steps whose mean shows noise that lasts longer than a step
CUT_NOISES = 1.8  # a single step counts at most as this many standard deviations over the drift
SPREAD_RANKS_MIN = 16  # fewer ranks do not show which spread is usual
SHARED_MAX = 0.3  # if more than this share of ranks is equally slow, their work differs
START_STEPS = 4  # slow within this many first steps: slow since the start
PAST_MIN = 12
TRIES_MAX = 4
RETRY_STEPS = 3
SPLIT_NOISES = 4.0
REFINED_AFTER = (4, 8, 16)
# If consecutive steps differ by more than this, other programs use the processors too, unevenly and for more
# than a step. Then a smaller excess is no sign of a straggler.
LOUD = 0.1
SCALE = 1.4826  # from a median deviation to a standard deviation


class Flag(Struct):
    """A rank that is slower than its peers (ranks with the same work). Shares are of the peers' time."""

    place: int
    excess: float
    ratio: float  # own time divided by that of its peers
    usual: float  # its excess before it became slow
    since: int  # first slow step
    found: int
    count: int  # number of steps seen before it became slow
    found_count: int  # number of steps seen before it was found
    is_from_start: bool
    sigmas: float
    well: float = 0.0  # CUSUM of the evidence that it is as fast as before
    over: int | None = None  # the step at which its recovery was certain


class _Column(Struct, gc=False):
    step: int
    values: Sequence[float]
    middle: float


class Panel:
    """Detects slow ranks among peers with the same work, one step at a time.

    `ranks`: number of rows; `job_ranks`: ranks of the whole job, for the rate of false alarms. `past_only`:
    the ranks do different work, so only a change in one counts.
    """

    def __init__(
        self,
        ranks: int,
        settings: StragglerSettings,
        *,
        job_ranks: int | None = None,
        past_only: bool = False,
        teams: Sequence[str] = (),
    ) -> None:
        self.flags: dict[int, Flag] = {}
        self.columns: deque[_Column] = deque(maxlen=settings.kept_steps)
        self.count = 0
        self.noise = NOISE_FIRST
        self._settings = settings
        self._ranks = ranks
        self._job_ranks = job_ranks or ranks
        self._past_only = past_only
        self._teams = teams if len(teams) == ranks else ()
        self._team_places: dict[str, list[int]] = {}
        for place, team in enumerate(self._teams):
            self._team_places.setdefault(team, []).append(place)
        self._sums: MutableSequence[float] = [0.0] * ranks
        self._usual: dict[int, float] = {}
        self._again: dict[
            int, tuple[int, int]
        ] = {}  # looked at so often in vain; not before this count of steps
        self._noise_at = _spread_out(ranks, NOISE_RANKS)
        self._sample_at = _spread_out(ranks, SAMPLE)
        self._steps_noise: deque[float] = deque(maxlen=NOISE_KEPT)
        self._block_noise: deque[float] = deque(maxlen=NOISE_KEPT)
        self._before: list[float] = []
        self._block: list[float] = []
        self._block_before: list[float] = []

    def add(self, step: int, values: Sequence[float], floor_s: float = 0.0) -> list[Flag]:
        """Adds one step, and returns flags that are new and flags that have ended.

        `values`: own times in seconds, one per rank; nan if unknown. `floor_s`: minimum base of the excess,
        for own times that are a small part of a step.
        """
        column = self._column(step, values, floor_s)
        if column is None:
            return []
        self.columns.append(column)
        self.count += 1
        self._learn_noise(column)
        settings, noise = self._settings, self.noise
        drift = max(settings.drift, noise / 2)
        step_max = max(drift, CUT_NOISES * noise)
        self._sum_up(column, drift, step_max)
        # No sum gets there in fewer steps, however long they are.
        limit = max(
            (settings.steps_min - 0.9) * step_max, cusum_limit(noise, drift, self._job_ranks, settings)
        )
        if self.count == settings.learn_steps:
            self._learn_usual(drift + step_max, limit / 4)
        for flag in self.flags.values():
            self._refine(flag)
        news = [flag for flag in self.flags.values() if self._is_over(flag, column)]
        for flag in news:
            del self.flags[flag.place]
        is_due = self.count > settings.steps_min and (self._ranks < LARGE or self.count % 2 == 0)
        if is_due and self._highest() >= limit:
            news += self._confirmed(column.step, limit, drift, drift + step_max)
        return news

    def excess(self, place: int, steps: int) -> float:
        """Returns the median excess of a rank over its peers in the last `steps` steps, as a share of their
        time.
        """
        taken = list(islice(reversed(self.columns), steps))
        return median(self._excess_of(column, place) for column in taken) if taken else 0.0

    # One step

    def _column(self, step: int, values: Sequence[float], floor_s: float) -> _Column | None:
        if not isfinite(self._total(values)):
            known = [value for value in values if isfinite(value)]
            if 2 * len(known) <= len(values):
                return None
            middle = median(known)
            values = [value if isfinite(value) else middle for value in values]
        small = len(values) <= SAMPLE
        ordered = sorted(values if small else itemgetter(*self._sample_at)(values))
        middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        if small:
            values = _against_others(values, ordered, middle)
        middle = max(middle, floor_s)
        if middle <= 0:
            return None
        return _Column(step, values if isinstance(values, array) else array("d", values), middle)

    def _excess_of(self, column: _Column, place: int) -> float:
        return column.values[place] / column.middle - 1.0

    def _sum_up(self, column: _Column, drift: float, step_max: float) -> None:
        own = [(place, self._sums[place], usual) for place, usual in self._usual.items()]
        self._raise_all(column.values, 1.0 / column.middle, 1.0 + drift, 1.0 + drift + step_max)
        for place, before, usual in own:
            excess = self._excess_of(column, place) - usual
            self._sums[place] = max(0.0, before + min(excess, drift + step_max) - drift)
        for place in self.flags:
            self._sums[place] = 0.0

    # The three that go over all ranks at every step

    def _total(self, values: Sequence[float]) -> float:
        return sum(values)

    def _raise_all(self, values: Sequence[float], inverse: float, less: float, cut: float) -> None:
        """Adds each rank's value (in units of the median, at most `cut`) less `less` to its sum; no sum falls
        below 0.
        """
        self._sums = [
            sum_
            if (sum_ := before + (scaled if (scaled := value * inverse) < cut else cut) - less) > 0.0
            else 0.0
            for before, value in zip(self._sums, values, strict=True)
        ]

    def _highest(self) -> float:
        return max(self._sums)

    def _learn_noise(self, column: _Column) -> None:
        """Measures how much consecutive steps of one rank differ, and whether that averages out over several
        steps.
        """
        now = [self._excess_of(column, place) for place in self._noise_at]
        if self._before:
            self._steps_noise.extend(abs(a - b) for a, b in zip(now, self._before, strict=True))
        self._before = now
        self._block = [a + b for a, b in zip(self._block, now, strict=True)] if self._block else now
        if self.count % BLOCK == 0:
            if self._block_before:
                pairs = zip(self._block, self._block_before, strict=True)
                self._block_noise.extend(abs(a - b) for a, b in pairs)
            self._block_before, self._block = self._block, []
        if self.count > 2 and (self.count < 2 * self._settings.learn_steps or self.count % 4 == 0):
            one = median(self._steps_noise) * SCALE / sqrt(2)
            lasting = 0.0
            if len(self._block_noise) >= BLOCK:
                unsure = 1.0 - 2.0 / sqrt(len(self._block_noise))  # few of them may be large by chance
                lasting = unsure * median(self._block_noise) * SCALE / sqrt(2 * BLOCK)
            self.noise = max(NOISE_MIN, one, lasting)

    def _learn_usual(self, cut: float, suspect: float) -> None:
        """Records the excess of ranks that are always slightly slower; afterwards only a change counts."""
        columns = list(self.columns)
        means = self._means(columns, cut, range(self._ranks))
        sure = 3 * self.noise / sqrt(len(columns))
        for place, mean in enumerate(means):
            if mean <= sure or place in self.flags or self._sums[place] >= suspect:
                continue
            usual = median(self._excess_of(column, place) for column in columns)
            if usual > 0:
                self._usual[place] = usual

    def _refine(self, flag: Flag) -> None:
        """Estimates the first slow step and the excess again, which more slow steps make more exact."""
        if self.count - flag.found_count not in REFINED_AFTER:
            return
        series = [self._excess_of(column, flag.place) for column in self.columns]
        before = self.count - len(series)  # steps that are no longer kept
        first = _best_split(series, self.noise, max(0, flag.count - before))
        if len(series) - first < self._settings.steps_min:
            return
        flag.excess = max(self._settings.excess_min, median(series[first:]))
        flag.ratio = self._ratio(flag.excess)
        if not flag.is_from_start:
            flag.since, flag.count = self.columns[first].step, before + first

    def _is_over(self, flag: Flag, column: _Column) -> bool:
        above = self._excess_of(column, flag.place) - (0.0 if flag.is_from_start else flag.usual)
        rise = flag.excess - (0.0 if flag.is_from_start else flag.usual)
        flag.well = max(0.0, flag.well + max(-rise, rise / 2 - above if above > -rise else rise * 1.5))
        if flag.well < max(4 * rise, 7 * self.noise**2 / rise):
            return False
        flag.over = column.step
        self._sums[flag.place] = 0.0
        return True

    # A closer look

    def _confirmed(self, step: int, limit: float, drift: float, cut: float) -> list[Flag]:
        found = []
        for place in [place for place, sum_ in enumerate(self._sums) if sum_ >= limit]:
            tries, due = self._again.get(place, (0, 0))
            if self.count < due:
                continue
            flag = self._judged(place, step, drift, cut, tries)
            if flag is not None:
                self.flags[place] = flag
                self._sums[place] = 0.0
                self._again.pop(place, None)
                found.append(flag)
        return found

    def _judged(self, place: int, step: int, drift: float, cut: float, tries: int) -> Flag | None:
        columns = list(self.columns)
        series = [self._excess_of(column, place) for column in columns]
        usual = self._usual.get(place, 0.0)
        first = _change([min(excess - usual, cut) - drift for excess in series])
        split = _best_split(series, self.noise, first)
        first = split if len(series) - split >= self._settings.steps_min else first
        slow, past = columns[first:], columns[:first]
        excess = median(series[first:])
        is_from_start = len(columns) == self.count and first < START_STEPS
        least = self._settings.excess_min if self.noise < LOUD else self.noise
        least = max(least, self._settings.unsure_excess)
        if len(slow) < self._settings.steps_min or excess - usual < least:
            self._again[place] = (tries, self.count + 1 + len(slow) // 4)
            return None
        if is_from_start and self._past_only:
            self._settle(place, excess)
            return None
        then = past if len(past) >= PAST_MIN else ()
        means, mine = self._compared(place, slow, then, cut)
        if self._are_many(place, means, mine):
            self._settle(place, excess)
            return None
        sigmas = self._sigmas(means, mine, len(slow))
        needed = outlier_limit(self._job_ranks, self._settings)
        if sigmas < needed:
            self._later(place, excess, len(slow), sigmas / needed, tries)
            return None
        before = median(series[:first]) if then else usual
        return Flag(
            place=place,
            excess=excess,
            ratio=self._ratio(excess),
            usual=max(0.0, before),
            since=slow[0].step,
            found=step,
            count=self.count - len(slow),
            found_count=self.count,
            is_from_start=is_from_start,
            sigmas=sigmas,
        )

    def _ratio(self, excess: float) -> float:
        """Returns the rank's time divided by its peers'. With two ranks, the median lies between them."""
        if self._ranks == 2 and excess < 2.0:
            return (1.0 + excess / 2) / max(0.01, 1.0 - excess / 2)
        return 1.0 + excess

    def _later(self, place: int, excess: float, steps: int, share: float, tries: int) -> None:
        """Schedules another examination of a rank whose slowness is not yet certain.

        In pure noise, certainty grows with the square root of the steps; if it does not, the ranks differ.
        """
        if tries >= TRIES_MAX or steps >= self._settings.kept_steps:
            self._settle(place, excess)
            return
        more = steps * (min(4.0, 1 / share**2) - 1) if share > 0 else steps
        self._again[place] = (tries + 1, self.count + max(RETRY_STEPS, round(more)))

    def _settle(self, place: int, excess: float) -> None:
        """Accepts the excess as this rank's usual one; afterwards only a change counts."""
        self._usual[place] = max(0.0, excess)
        self._sums[place] = 0.0
        self._again.pop(place, None)

    def _compared(
        self, place: int, slow: Sequence[_Column], past: Sequence[_Column], cut: float
    ) -> tuple[dict[int, float], float]:
        """Returns the change in the excess of a sample of ranks, with all of the rank's own team, and the
        change of this rank.
        """
        team = self._team_places.get(self._teams[place], ()) if self._teams else ()
        places = sorted({*self._sample_at, *team, place})
        means = self._means(slow, cut, places)
        if past:
            then = self._means(past, cut, places)
            means = [mean - max(0.0, before) for mean, before in zip(means, then, strict=True)]
        found = dict(zip(places, means, strict=True))
        return found, found[place]

    def _are_many(self, place: int, means: Mapping[int, float], mine: float) -> bool:
        """Returns whether so many ranks are equally slow that their work must differ, and they are not one
        node.
        """
        team = self._teams[place] if self._teams else None
        alike = sum(
            mean > mine / 2 and (team is None or self._teams[other] != team) for other, mean in means.items()
        )
        own = team is None  # itself was counted
        return alike - own > SHARED_MAX * (len(means) - 1)

    def _sigmas(self, means: Mapping[int, float], mine: float, steps: int) -> float:
        """Returns how many standard deviations the rank is slower, relative to the usual spread of ranks over
        as many steps.

        The spread is taken from the faster half, which a slow node does not affect.
        """
        ordered = sorted(means.values())
        noise = self.noise / sqrt(steps)
        if self._ranks >= SPREAD_RANKS_MIN:
            low, quarter = ordered[len(ordered) // 20], ordered[len(ordered) // 4]
            noise = max(noise, (quarter - low) / 0.97)  # of normal values: 1.645 - 0.674 standard deviations
        ordered.remove(mine)
        return (mine - ordered[(len(ordered) - 1) // 2]) / noise

    def _means(self, columns: Iterable[_Column], cut: float, places: Sequence[int]) -> list[float]:
        """Returns the mean excess of each of these ranks over these steps, with single long steps clipped."""
        taken = list(columns)
        pick = itemgetter(*places) if len(places) > 1 else lambda values: tuple(values)
        scaled = []
        for column in taken:
            inverse, cut_s = 1.0 / column.middle, (1.0 + cut) * column.middle
            scaled.append([value * inverse if value < cut_s else 1.0 + cut for value in pick(column.values)])
        return [sum_ / len(taken) - 1.0 for sum_ in map(sum, zip(*scaled, strict=True))]


def _against_others(values: Sequence[float], ordered: Sequence[float], middle: float) -> list[float]:
    """Returns each value as it would be if the median of the *other* ranks were the median of all.

    With few ranks, the slow one moves the median itself; with two, the other rank is the reference.
    """
    many = len(ordered)
    if many < 2:
        return list(values)
    at = many // 2
    if many % 2 == 0:
        low, high = ordered[at - 1], ordered[at]
        return [value + middle - (low if value >= high else high) for value in values]
    below, above = (ordered[at - 1] + middle) / 2, (middle + ordered[at + 1]) / 2
    same = (ordered[at - 1] + ordered[at + 1]) / 2
    return [
        value + middle - (below if value > middle else above if value < middle else same) for value in values
    ]


def _change(gains: Sequence[float]) -> int:
    """Returns the index from which the sum of the remaining values is highest."""
    best, best_at, total = float("-inf"), len(gains), 0.0
    for at in range(len(gains) - 1, -1, -1):
        total += gains[at]
        if total >= best:
            best, best_at = total, at
    return best_at


def _best_split(series: Sequence[float], noise: float, otherwise: int) -> int:
    """Returns the index at which the level of the series changes most, by least squares; `otherwise` if it is
    only noise.
    """
    high = 2 * max(noise, median(series[otherwise:]))
    cut = [max(-high, min(high, value)) for value in series]
    many, total, left = len(cut), sum(cut), 0.0
    best, best_at = SPLIT_NOISES**2 * noise**2, otherwise
    for at in range(1, many):
        left += cut[at - 1]
        rise = (total - left) / (many - at) - left / at
        gain = rise * rise * at * (many - at) / many if rise > 0 else 0.0
        if gain > best:
            best, best_at = gain, at
    return best_at


def _spread_out(many: int, wanted: int) -> tuple[int, ...]:
    """Returns places without a period, because every eighth would be the same device of each node."""
    if many <= wanted:
        return tuple(range(many))
    return tuple(sorted({place * 2654435761 % many for place in range(wanted)}))

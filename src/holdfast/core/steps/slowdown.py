"""Detects that steps have become slower and stay so, and that they are fast again.

Pure; microseconds per record.

It compares the mean of the *lowest 70 %* of a window with that of the steps before it. Checkpoints,
evaluation, garbage collection and random spikes do not change such a mean (they are among the highest 30 %);
it rises by 10 % when every step takes 10 % longer, whatever the distribution, and it varies less than a
median. Two windows: 10 records find 10 % before the tenth, 30 records find 5 %.

A window must exceed the earlier deviations of this log's own windows: limits are learned (`_Limits`). The
steps before are a few hundred, so a variation over the day affects both; their trend is subtracted, so
batches ordered by length cause no finding; a creeping slowdown is found by comparison with the best level
that was ever held for long (`_Held`).
"""

from bisect import bisect_left, insort
from collections import deque
from math import sqrt
from typing import Literal

from msgspec import Struct

from holdfast.core.steps.season import Season, quantum

SHORT, LONG = 10, 30  # records in a window
KEPT = 0.7  # part of a window that is averaged: three of ten records may be pauses
SHORT_KEPT, LONG_KEPT = int(SHORT * KEPT), 24  # six pauses are allowed in the longer window
HISTORY = 256  # records before the window
HISTORY_MIN = 10  # with fewer records, there are no findings
LONG_MIN = 60  # records of history required to report a change of 5 %
SHORT_FLOOR, LONG_FLOOR = (
    0.06,
    0.033,
)  # below 10 % and 5 %, because not all records of the window are slow at once
YOUNG = 12  # records: the limits are higher by YOUNG / history, because a short history is less reliable
CLIP = 1.15  # values are clipped to this multiple of the upper quartile, because they may be pauses
CLIP_MEDIAN = 1.5  # and to this multiple of the median
SEASON_FIRST = (
    24  # records of a level after which a period is first searched; then at twice as many, then every HISTORY
)
REFRESH = 16  # records between two computations over the history
SPREADS = 6.0  # a window must exceed this many robust standard deviations of earlier windows
WORST = 1.4  # and this multiple of their largest deviation
WINDOWS = 48  # earlier windows whose deviation is recorded
WANDER, WANDER_MIN = (
    5.0,
    8,
)  # spreads of this many short windows that a long window must exceed, because levels may drift
DELAYED = 3  # windows between the recording of a deviation and its use
WINDOWS_MIN = 12  # fewer windows have no reliable spread
SKIPPED = 2  # records at the start: compilation, first allocation
SLOPE_SURE = 2.0  # minimum difference of the history's halves, in standard errors, for a trend
OPEN_MAX = 8  # slowdowns that are open at the same time
BLOCK = 64  # records per block, for comparisons over a long time
BLOCKS_HELD = 3  # successive blocks with the same level make it a sustained one
HELD_SPREAD = 0.04  # maximum difference of these blocks, as a share
CREEP = 0.10  # rise of two successive blocks above the best sustained level

ChangeKind = Literal["slower", "creeping", "over", "faster"]


class Change(Struct, frozen=True, kw_only=True):
    """A change of the step-time level since record number `since` (from 0), reported at record `at`."""

    kind: ChangeKind
    since: int
    at: int
    before: float  # level: mean of the lowest 70 %
    after: float
    sure: float  # the limit that was exceeded, as a share


class Open(Struct):
    """A slowdown that has not ended. `before`: the usual step time before it."""

    since: int
    before: float
    after: float
    history: list[float]
    median: float  # median of a record before the slowdown


class LevelWatch:
    """Detects changes of the level, from the values of comparable steps in order."""

    def __init__(self) -> None:
        self.at = -1  # number of the last record
        self.open: list[Open] = []
        self._start()

    def _start(self) -> None:
        self._skip = SKIPPED
        self._pending: deque[float] = deque(maxlen=LONG)  # newest; not yet history
        self._long: list[float] = []  # the same, sorted
        self._newest: list[float] = []  # the newest SHORT of them, sorted
        self._history = _History()
        self._season = Season()
        self._raw: deque[float] = deque(maxlen=HISTORY)
        self._learn_at = SEASON_FIRST
        self._short_limit, self._long_limit = _Limits(SHORT_FLOOR), _Limits(LONG_FLOOR)
        self._held = _Held()

    def restart(self) -> None:
        """Starts another regime: earlier step times are no longer comparable."""
        self.open = []
        self._start()

    @property
    def level(self) -> float | None:
        """Returns the current level of the step time in seconds; None with too few records."""
        return self._history.level if self._history.count >= HISTORY_MIN else None

    @property
    def usual(self) -> float | None:
        """Returns the median step time in the history; None with too few records."""
        return self._history.median if self._history.count >= HISTORY_MIN else None

    @property
    def known(self) -> int:
        """Returns the number of records from which the current level is computed."""
        return self._history.count

    @property
    def spread(self) -> float:
        """Returns the robust spread of single step times, as a share of the level."""
        return self._history.spread

    def dismiss(self) -> None:
        """Removes the reported change, because the training's work has changed, so that it is no slowdown."""
        if self.open:
            self.open.pop()
        self._held = _Held()

    def feed(self, value: float) -> Change | None:
        """Adds one value, and returns a change of the level, if this record shows one."""
        self.at += 1
        if self._skip:
            self._skip -= 1
            return None
        self._raw.append(value)
        if len(self._raw) == self._learn_at or (len(self._raw) == HISTORY and self.at % HISTORY == 0):
            self._learn_season()
        else:
            self._push(value / self._season.factor(self.at))
        if len(self._pending) < SHORT:
            return None
        short = self._short()
        if self.open:
            over = self._is_over(short)
            if over is not None:
                return over
        if self._history.count < HISTORY_MIN:
            return None
        return self._judge(short)

    def _learn_season(self) -> None:
        """Searches for a period, and if there is one, evaluates all records again with its divisors."""
        self._learn_at *= 2
        raw = self._raw
        if not self._season.learn(list(raw), self.at):
            self._push(raw[-1] / self._season.factor(self.at))
            return
        first = self.at - len(raw) + 1
        self._pending.clear()
        self._long, self._newest = [], []
        self._history = _History()
        for place, value in enumerate(raw, first):
            self._push(value / self._season.factor(place))

    def _push(self, value: float) -> None:
        pending, history = self._pending, self._history
        # A short log needs a level before thirty records.
        lag = LONG if history.count >= LONG_MIN else SHORT
        oldest = value
        while len(pending) >= lag:
            oldest = pending.popleft()
            del self._long[bisect_left(self._long, oldest)]
            history.add(oldest)
        if len(pending) >= SHORT:
            del self._newest[bisect_left(self._newest, pending[-SHORT])]
        elif len(self._newest) >= SHORT:  # the window is that of the lag, and its oldest has just gone
            del self._newest[bisect_left(self._newest, oldest)]
        pending.append(value)
        insort(self._long, value)
        insort(self._newest, value)

    def _short(self) -> float:
        return _mean(self._newest[:SHORT_KEPT], self._history.low, self._history.high)

    def _long_level(self) -> float:
        return _mean(self._long[:LONG_KEPT], self._history.low, self._history.high)

    def _judge(self, short: float) -> Change | None:
        history = self._history
        usual = history.expected(len(self._pending))
        limit = self._short_limit.limit(history, SHORT_KEPT)
        risen = short / usual - 1
        if risen > limit:
            return self._slower(short, limit)
        if risen < -max(SHORT_FLOOR, limit * 0.8) and short < history.level * (1 - SHORT_FLOOR):
            return self._faster(short, limit)
        if self.at % SHORT == 0:
            self._short_limit.note(risen)
        if len(self._pending) == LONG and history.count >= LONG_MIN:
            return self._judge_long(usual)
        return None

    def _judge_long(self, usual: float) -> Change | None:
        history = self._history
        level = self._long_level()
        limit = max(self._long_limit.limit(history, LONG_KEPT), self._short_limit.wander)
        risen = level / usual - 1
        if risen > limit:
            return self._slower(level, limit)
        if risen < -max(LONG_FLOOR, limit * 0.8) and level < history.level * (1 - LONG_FLOOR):
            return self._faster(level, limit)
        if self.at % (LONG // 2) == 0:
            self._long_limit.note(risen)
        if self.at % BLOCK == 0 and not self.open:
            return self._creeping()
        return None

    def _creeping(self) -> Change | None:
        level, best = self._history.recent(), self._held.best
        risen = self._held.note(level, self.at)
        if best is None or risen is None:
            return None
        limit = max(CREEP, self._long_limit.limit(self._history, LONG_KEPT))
        if risen < limit:
            return None
        since = self._held.left
        self._open(since, best, level)
        return Change(kind="creeping", since=since, at=self.at, before=best, after=level, sure=limit)

    def _slower(self, level: float, limit: float) -> Change:
        before = self._history.level
        count = self._onset((before + level) / 2)
        after = self._level_of_last(count)
        if after < before * (1 + limit / 2):
            after = level
        since = self.at - count + 1
        change = Change(kind="slower", since=since, at=self.at, before=before, after=after, sure=limit)
        self._open(since, before, after)
        self._keep_last(count)
        return change

    def _faster(self, level: float, limit: float) -> Change:
        before = self._history.level
        count = self._onset((before + level) / 2, falling=True)
        since = self.at - count + 1
        after = self._level_of_last(count)
        self._keep_last(count)
        self._held = _Held()
        return Change(
            kind="faster", since=since, at=self.at, before=before, after=min(after, level), sure=limit
        )

    def _open(self, since: int, before: float, after: float) -> None:
        if len(self.open) < OPEN_MAX:
            self.open.append(Open(since, before, after, self._history.values(), self._history.median))

    def _is_over(self, short: float) -> Change | None:
        """Returns the end of a slowdown once the level is below the middle between the slow and the earlier
        level.
        """
        last = self.open[-1]
        middle = (last.before + last.after) / 2
        if short >= middle:
            return None
        count = self._onset(middle, falling=True)
        self.open.pop()
        self._keep_last(count)
        # The earlier level is known and need not be learned again.
        if last.history:
            self._history.restore(last.history)
        return Change(
            kind="over", since=self.at - count + 1, at=self.at, before=last.after, after=short, sure=0.0
        )

    def _onset(self, middle: float, *, falling: bool = False) -> int:
        """Returns how many of the newest records have the new level: where the sum of deviations from the
        middle is highest.
        """
        high = max(self._history.high, middle * CLIP)
        best, best_count, total = 0.0, 1, 0.0
        for count, value in enumerate(reversed(self._pending), 1):
            off = min(value, high) - middle
            total += -off if falling else off
            if total > best:
                best, best_count = total, count
        return max(best_count, 3)

    def _level_of_last(self, count: int) -> float:
        values = sorted(list(self._pending)[-count:])
        kept = max(int(len(values) * KEPT), 1)
        return sum(values[:kept]) / kept

    def _keep_last(self, count: int) -> None:
        """Drops the records before the last `count`, which have another level."""
        newest = list(self._pending)[-count:]
        self._raw = deque(list(self._raw)[-count:], maxlen=HISTORY)
        self._learn_at = max(SEASON_FIRST, 2 * count)
        self._pending.clear()
        self._pending.extend(newest)
        self._long = sorted(newest)
        self._newest = sorted(newest[-SHORT:])
        self._short_limit.forget_newest()
        self._long_limit.forget_newest()
        self._history = _History()


class _History:
    """The last HISTORY records before the window, with statistics that are computed every REFRESH records."""

    def __init__(self) -> None:
        self._ring: deque[float] = deque()
        self._sorted: list[float] = []
        self._due = 0
        self.refreshed = 0  # how often
        self.level = 0.0
        self.median = 0.0
        self.low, self.high = 0.0, float("inf")  # what is beyond counts as this
        self.spread = 0.0  # of a record, robust, as a share of the level
        self.quantum = (
            0.0  # the step between neighbouring values where there are few, as a share of the level
        )
        self.slope = 0.0  # of the level, per record, as a share; never below 0

    @property
    def count(self) -> int:
        return len(self._ring)

    def values(self) -> list[float]:
        return list(self._ring)

    def restore(self, values: list[float]) -> None:
        self._ring = deque(values)
        self._sorted = sorted(values)
        self._refresh()

    def add(self, value: float) -> None:
        ring = self._ring
        if len(ring) >= HISTORY:
            del self._sorted[bisect_left(self._sorted, ring.popleft())]
        ring.append(value)
        insort(self._sorted, value)
        self._due -= 1
        if self._due <= 0 or len(ring) <= REFRESH:
            self._refresh()

    def _refresh(self) -> None:
        ordered = self._sorted
        count = len(ordered)
        self.refreshed += 1
        self._due = REFRESH if count >= 2 * REFRESH else REFRESH // 4
        middle, quarter = ordered[count // 2], ordered[(3 * count) // 4]
        self.median = middle
        self.high = min(quarter * CLIP, middle * CLIP_MEDIAN)
        self.low = min(ordered[count // 4], middle) / CLIP
        self.level = _lowest_mean(ordered, self.low, self.high)
        spread = max(middle - ordered[count // 4], quarter - middle) / 0.6745
        self.spread = spread / self.level if self.level else 0.0
        self.quantum = quantum(ordered)
        self._find_slope()

    def _find_slope(self) -> None:
        count = len(self._ring)
        self.slope = 0.0
        if count < HISTORY_MIN:
            return
        values = list(self._ring)
        half = count // 2
        older, newer = sorted(values[:half]), sorted(values[half:])
        risen = (
            _lowest_mean(newer, self.low, self.high) - _lowest_mean(older, self.low, self.high)
        ) / self.level
        if risen > SLOPE_SURE * self.spread / sqrt(half):
            self.slope = risen / (count - half)

    def recent(self) -> float:
        """Returns the level of the newest BLOCK records of the history."""
        values = list(self._ring)[-BLOCK:]
        return _lowest_mean(sorted(values), self.low, self.high)

    def expected(self, ahead: int) -> float:
        """Returns the level that the trend predicts for the window, `ahead` records after the history."""
        return self.level * (1 + self.slope * (len(self._ring) / 2 + ahead - SHORT / 2))


class _Limits:
    """The minimum rise of a window above the history for a finding, learned from the deviations of earlier
    windows.
    """

    def __init__(self, floor: float) -> None:
        self._floor = floor
        self._seen: deque[float] = deque(maxlen=WINDOWS)
        self._waiting: deque[float] = deque()
        self._limit = floor
        self.wander = 0.0  # what a level that wanders by itself does in a longer window
        self._known: tuple[_History, int] | None = None
        self._learned = 0.0

    def forget_newest(self) -> None:
        """Drops the newest deviations after a change of the level, because the change may be part of them."""
        self._waiting.clear()

    def note(self, risen: float) -> None:
        # A slowdown that has just begun must not raise the limit by which it is found.
        waiting, seen = self._waiting, self._seen
        waiting.append(risen)
        if len(waiting) <= DELAYED:
            return
        seen.append(waiting.popleft())
        ordered = sorted(seen)
        middle = ordered[len(ordered) // 2]
        spread = 1.4826 * sorted(abs(value - middle) for value in ordered)[len(ordered) // 2]
        self._learned = WORST * ordered[-1]
        if len(ordered) >= WANDER_MIN:
            self.wander = WANDER * spread
        if len(ordered) >= WINDOWS_MIN:
            self._learned = max(self._learned, SPREADS * spread)
        self._known = None

    def limit(self, history: _History, kept: int) -> float:
        """Returns the limit as a share; computed again after the history or a recorded deviation
        has changed.
        """
        if self._known == (history, history.refreshed):
            return self._limit
        self._known = (history, history.refreshed)
        learned = max(self._learned, SPREADS * history.spread / sqrt(kept))
        self._limit = max(self._floor * (1 + YOUNG / history.count), learned, 1.2 * history.quantum)
        return self._limit


class _Held:
    """The best level that was sustained for three blocks, and whether the last two blocks lie far
    above it.
    """

    def __init__(self) -> None:
        self.best: float | None = None
        self.left = 0  # the record from which on it was no longer sustained
        self._last: deque[float] = deque(maxlen=BLOCKS_HELD)
        self._above = 0

    def note(self, level: float, at: int) -> float | None:
        """Returns how far the last two blocks lie above the best level, as a share; None unless both do."""
        last = self._last
        last.append(level)
        if len(last) == BLOCKS_HELD and max(last) <= min(last) * (1 + HELD_SPREAD):
            held = max(last)
            if self.best is None or held < self.best:
                self.best = held
        if self.best is None:
            return None
        risen = level / self.best - 1
        if risen < HELD_SPREAD:
            self.left = at
        self._above = self._above + 1 if risen >= CREEP else 0
        return risen if self._above >= 2 else None


def _lowest_mean(ordered: list[float], low: float, high: float) -> float:
    return _mean(ordered[: max(int(len(ordered) * KEPT), 1)], low, high)


def _mean(ordered: list[float], low: float, high: float) -> float:
    """Returns the mean with each value clipped; `ordered` is sorted, so that most calls need no clipping."""
    if ordered[-1] > high or ordered[0] < low:
        return sum(low if value < low else min(value, high) for value in ordered) / len(ordered)
    return sum(ordered) / len(ordered)

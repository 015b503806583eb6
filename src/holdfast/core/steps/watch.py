"""Draws all conclusions from the steps of one log, as they arrive. Pure, and of bounded size for any length.

Combines: which records are comparable (runs, batch size, sequence length), the level of their times
(`slowdown`), phases and spikes (`phases`), the curve (`curve`), slowdowns visible only in the whole run
(`stretches`), and the loss (`loss`).
"""

from collections import deque
from copy import deepcopy
from itertools import dropwhile, groupby
from math import isfinite
from statistics import median

from msgspec.structs import replace

from holdfast.core.steps import listing, stretches, wording
from holdfast.core.steps.curve import Curve
from holdfast.core.steps.loss import LossWatch
from holdfast.core.steps.open_slowdown import OpenSlowdown
from holdfast.core.steps.phases import PhaseModel
from holdfast.core.steps.schedule import Plan
from holdfast.core.steps.slowdown import Change, LevelWatch, Open
from holdfast.core.steps.stands import StandWatch
from holdfast.core.steps.warm_up import settle, spread
from holdfast.core.steps.watch_settings import Baseline, StepSettings
from holdfast.model.steps import (
    CurvePoint,
    LossReport,
    MarkKind,
    Phase,
    PhaseMark,
    Slowdown,
    Spike,
    StepFinding,
    StepNow,
    StepRecord,
)

YOUNG_RECORDS = 12  # first records of a run, which determine its warm-up
RECENT = 300  # records whose waits for data and throughputs are kept
MARKS_MAX = 8  # between two records
SLOWDOWNS_MAX = 200  # recorded; more are noise
FINDINGS_MAX = 50  # slowdowns reported for one log; further ones are only listed
PLACES_MAX = 1000  # recorded positions of blocks of records
BLOCK = 64  # records
LEVEL_KNOWN = 20  # records from which on the level of a slowdown is computed from all of it
COMPARED_AT = 20  # records of a new run before it is compared with the previous one
STAYS_SHARE = 0.4  # if throughput falls by less than this part of the expected fall, a step has more work


class StepWatch:
    """Detects slowdowns, phases and bad losses from the steps of one log, streaming, in bounded memory."""

    def __init__(self, settings: StepSettings = StepSettings(), *, before: Baseline | None = None) -> None:  # noqa: B008
        self._settings = settings
        self._before = before  # what a new run is still to be compared with
        self._level = LevelWatch()
        self._phases = PhaseModel()
        self._curve = Curve()
        self._loss = LossWatch()
        self._young: list[tuple[int, float, list[MarkKind]]] | None = []
        self._marks: list[MarkKind] = []
        self._last: StepRecord | None = None
        self._step = 0  # of the last record; counted where the log does not say
        self._regime = 0
        self._shape: tuple[float | None, int | None] = (None, None)
        self._recent: deque[tuple[int, float, float | None, float | None, float | None]] = deque(
            maxlen=RECENT
        )
        self._places: list[tuple[int, int, float | None]] = []  # record, step, stamp: every 64th
        self._plan = Plan()
        self._reported: list[OpenSlowdown] = []
        self._open: list[OpenSlowdown] = []
        self._findings = 0
        self._by_throughput = False
        self._checkpoint_at_s: float | None = None
        limits = settings
        self._stand = StandWatch(
            limits.stands_s, limits.stands_ratio, limits.stands_pause_ratio, limits.stands_lines
        )

    # What comes in

    def feed(self, item: StepRecord | PhaseMark) -> list[StepFinding]:
        """Processes one record or mark of the log, in order, and returns new findings.

        Repeated steps are ignored.
        """
        if isinstance(item, PhaseMark):
            if item.kind == "schedule":
                self._plan.is_announced = True
                return []
            if item.kind == "stage":
                self._plan.stage(self._level.at + 1)
                return []
            if item.kind == "checkpoint" and item.at_s is not None:
                self._checkpoint_at_s = item.at_s
            if len(self._marks) < MARKS_MAX and item.kind not in self._marks:
                self._marks.append(item.kind)
            return []
        last = self._last
        if last is not None and item.run != last.run:
            self._new_run(item)
        elif last is not None and item.step is not None and last.step is not None and item.step <= last.step:
            return []
        self._stand.stepped()
        self._step = item.step if item.step is not None else self._step + item.steps
        self._follow_shape(item)
        found = self._loss.feed(item.step, item.loss, item.at_s) if item.loss is not None else []
        value = self._value(item, last)
        if last is not None and item.epoch is not None and item.epoch != last.epoch:
            self._plan.epoch(self._level.at + 1)
        self._last = item
        if value is not None:
            found.extend(self._follow(item, value))
        self._marks = []
        return found

    def line_seen(self, at_s: float) -> None:
        """Records that a log line arrived now, by the caller's clock."""
        self._stand.line_seen(at_s)

    def tick(self, at_s: float) -> list[StepFinding]:
        """Returns a finding if the step counter has stopped while lines continue.

        Same clock as `line_seen`.
        """
        if not self._stand.may_stand(at_s):
            return []
        usual = self.median_s()
        if usual is None:
            return []
        steps = self._last.steps if self._last else 1
        return self._stand.tick(at_s, self._step, usual * steps, paused=bool(self._marks))

    # What is concluded

    def now(self) -> StepNow:
        """Returns the current step, step times and loss."""
        last = self._last
        values = [value for _, value, *_ in list(self._recent)[-10:]]
        now_s = median(values) if values and not self._by_throughput else None
        total = last.total if last else None
        left = (
            total - self._step if total is not None and last is not None and last.step is not None else None
        )
        levels = [slowdown.before for slowdown in self._open] + (
            [self._level.usual] if self._level.usual else []
        )
        loss = last.loss if last and last.loss is not None and isfinite(last.loss) else None
        return StepNow(
            step=last.step if last else None,
            total=total,
            now_s=now_s,
            median_s=self.median_s(),
            best_s=min(levels) if levels and not self._by_throughput else None,
            eta_s=left * now_s if left is not None and left >= 0 and now_s is not None else None,
            loss=loss,
            slowdown=self._in_words(),
            checkpoint_at_s=self._checkpoint_at_s,
            phase="warm-up" if self._young is not None and last else (self._marks[-1] if self._marks else ""),
        )

    def phases(self) -> tuple[Phase, ...]:
        return self._settled().phases()

    def spikes(self) -> tuple[Spike, ...]:
        return self._settled().spikes()

    def loss(self) -> LossReport:
        return self._loss.report()

    def curve(self) -> tuple[CurvePoint, ...]:
        """Returns the step-time curve of usual steps; steps explained by a checkpoint or similar are separate
        points.
        """
        long = self._settled().long_steps()
        is_single = self._curve.width == 1
        points = [
            point for point in self._curve.shown() if not (is_single and (point.run, point.last_step) in long)
        ]
        for (run, step), (kind, time_s) in long.items():
            points.append(CurvePoint(step, step, time_s, time_s, time_s, run, kind))
        return tuple(sorted(points, key=lambda point: (point.run, point.first_step, point.last_step)))

    def median_s(self) -> float | None:
        """Returns the median step time; None if the log contains only throughput, or no steps."""
        return None if self._by_throughput else self._curve.median_s()

    def baseline(self) -> Baseline | None:
        """Returns the best level of the current run, from before an open slowdown; the previous run's, while
        too little is known.
        """
        level, usual, last = self._level.level, self._level.usual, self._last
        if level is None or usual is None or last is None or self._by_throughput:
            return self._before
        if self._open:
            level, usual = self._open[0].before, self._open[0].median
        return Baseline(
            level_s=level,
            median_s=usual,
            spread=self._level.spread,
            records=self._level.at + 1,
            batch=self._shape[0],
            sequence=self._shape[1],
            last_step=last.step,
        )

    def slowdowns(self) -> tuple[Slowdown, ...]:
        """Returns all reported slowdowns, and those that are visible only in the whole log."""
        found = [self._slowdown(one) for one in self._reported]
        reported = list(found)
        ranks = self._settings.ranks
        points = self._curve.stretches()
        for _, members in groupby(points, key=lambda point: (point.run, point.regime)):
            piece = list(members)
            for slow in stretches.find(piece):
                if slow.kind == "ramp" and self._plan.is_announced:
                    continue
                goes_on = slow.to_end and piece[-1] is points[-1]
                slowdown = listing.of_stretch(
                    slow, piece, ranks, goes_on=goes_on, in_seconds=not self._by_throughput
                )
                if any(listing.is_said(slowdown, other) for other in reported):
                    continue
                # It was reported when it began; its range and size are known better now.
                same = next((other for other in found if listing.is_same(slowdown, other)), None)
                if same is not None:
                    found.remove(same)
                    slowdown = replace(slowdown, found_step=same.found_step)
                found.append(slowdown)
        found.extend(listing.of_pauses(grown, ranks) for grown in self._settled().grown())
        found.sort(key=lambda slowdown: (slowdown.run, slowdown.first_step or 0))
        return tuple(found)

    # How

    def _value(self, item: StepRecord, last: StepRecord | None) -> float | None:
        """Returns the seconds of one step: as logged, else by time stamps, else 1 / throughput; None if there
        is none.
        """
        value = item.time_s if item.time_s is not None else item.printed_s
        if value is None and last is not None and item.at_s is not None and last.at_s is not None:
            if item.run == last.run and item.steps > 0:
                value = (item.at_s - last.at_s) / item.steps
        if (
            value is None
            and item.at_s is None
            and item.throughput
            and (self._by_throughput or not self._recent)
        ):
            self._by_throughput = True
            value = 1 / item.throughput
        return value if value is not None and 0 < value < 1e9 else None

    def _new_run(self, item: StepRecord) -> None:
        resumed = item.step is not None and item.step > 3 * item.steps
        self._before = self.baseline() if resumed else None
        self._phases = self._settled()
        self._young = []
        self._marks = []
        self._loss.restart()
        self._shape = (None, None)
        self._last = None
        self._new_regime()

    def _new_regime(self) -> None:
        for slowdown in self._open:
            slowdown.open = False
            slowdown.last = self._step if slowdown.last is None else slowdown.last
        self._open = []
        self._regime += 1
        self._level.restart()
        self._recent.clear()

    def _follow_shape(self, item: StepRecord) -> None:
        """Begins a regime after a logged change of batch size or sequence length: steps before and after are
        not comparable.
        """
        old_batch, old_sequence = self._shape
        batch = item.batch if item.batch is not None else old_batch
        sequence = item.sequence if item.sequence is not None else old_sequence
        if (old_batch is not None and batch != old_batch) or (
            old_sequence is not None and sequence != old_sequence
        ):
            self._new_regime()
        self._shape = (batch, sequence)

    def _follow(self, item: StepRecord, value: float) -> list[StepFinding]:
        self._curve.add(
            self._step,
            item.steps,
            value,
            run=item.run,
            regime=self._regime,
            epoch=item.epoch,
            at_s=item.at_s,
            data_s=item.data_s,
        )
        self._phase(item, value)
        change = self._level.feed(value)
        at = self._level.at
        self._recent.append((self._step, value, item.at_s, item.data_s, item.throughput))
        if at % BLOCK == 0:
            self._places.append((at, self._step - item.steps, item.at_s))
            if len(self._places) > PLACES_MAX:
                del self._places[::2]
        for slowdown in self._open:
            slowdown.steps += item.steps
        if (
            change is None
            and self._open
            and self._level.known >= LEVEL_KNOWN
            and self._level.level is not None
        ):
            self._open[-1].after = self._level.level
        found = self._changed(change) if change is not None else []
        if self._before is not None and self._level.known >= COMPARED_AT:
            found.extend(self._compare_with_before())
        return found

    def _phase(self, item: StepRecord, value: float) -> None:
        if self._young is not None:
            self._young.append((self._step, value, self._marks))
            if len(self._young) >= YOUNG_RECORDS:
                settle(self._phases, item.run, self._young)
                self._young = None
            return
        self._phases.add(item.run, self._step, value, self._usual(value), self._marks)

    def _usual(self, value: float) -> float:
        usual = self._level.usual
        if usual is not None:
            return usual
        return median(value for _, value, *_ in list(self._recent)[-9:]) if self._recent else value

    def _settled(self) -> PhaseModel:
        if not self._young:
            return self._phases
        phases = deepcopy(self._phases)
        settle(phases, self._last.run if self._last else 0, self._young)
        return phases

    def _place(self, record: int) -> tuple[int | None, float | None]:
        """Returns step and time stamp of a record: exact for the newest 300, else those of its block."""
        back = self._level.at - record
        if 0 <= back < len(self._recent):
            step, _, at_s, *_ = self._recent[-1 - back]
            return step, at_s
        earlier = [place for place in self._places if place[0] <= record]
        return (earlier[-1][1], earlier[-1][2]) if earlier else (None, None)

    def _changed(self, change: Change) -> list[StepFinding]:
        if change.kind == "faster":
            return []
        if change.kind == "over":
            return self._over(change)
        count = min(change.at - change.since + 1, len(self._recent))
        if self._is_more_work(change, count) or self._is_planned(change):
            self._level.dismiss()
            self._regime += 1
            step, _ = self._place(change.since)
            self._curve.begin_regime(self._regime, step if step is not None else self._step)
            return []
        first, at_s = self._place(change.since)
        slowdown = OpenSlowdown(change, first, at_s, self._step, self._last.run if self._last else 0)
        slowdown.median = self._level.open[-1].median if self._level.open else change.before
        slowdown.what = self._what(change, count)
        slowdown.steps = count * (self._last.steps if self._last else 1)
        return self._report(slowdown)

    def _report(self, slowdown: OpenSlowdown) -> list[StepFinding]:
        self._open.append(slowdown)
        if len(self._reported) >= SLOWDOWNS_MAX:
            return []
        self._reported.append(slowdown)
        self._findings += 1
        if self._findings > FINDINGS_MAX:
            return []
        at_s = self._last.at_s if self._last else None
        finding = wording.slower(self._slowdown(slowdown), self._step, at_s, slowdown.sure)
        return [replace(finding, kind="throughput-drop") if self._by_throughput else finding]

    def _over(self, change: Change) -> list[StepFinding]:
        if not self._open:
            return []
        slowdown = self._open.pop()
        slowdown.open = False
        last, _ = self._place(change.since - 1)
        slowdown.last = last
        slowdown.kind = "transient" if slowdown.kind == "lasting" else slowdown.kind
        if self._findings > FINDINGS_MAX or slowdown not in self._reported:
            return []
        return [
            wording.over(
                self._slowdown(slowdown),
                self._step,
                self._last.at_s if self._last else None,
                change.after,
                ranks_known=self._settings.ranks is not None,
            )
        ]

    def _compare_with_before(self) -> list[StepFinding]:
        before, level = self._before, self._level.level
        self._before = None
        if before is None or level is None or self._by_throughput or before.level_s <= 0:
            return []
        batch, sequence = self._shape
        if (before.batch is not None and batch is not None and batch != before.batch) or (
            before.sequence is not None and sequence is not None and sequence != before.sequence
        ):
            return []
        limit = max(self._settings.restart_ratio - 1, 3 * before.spread, 3 * self._level.spread)
        if level / before.level_s - 1 <= limit:
            return []
        since = max(self._level.at - len(self._recent) + 1, 0)
        change = Change(
            kind="slower", since=since, at=self._level.at, before=before.level_s, after=level, sure=limit
        )
        self._level.open.insert(0, Open(since, before.level_s, level, [], before.median_s))
        first, at_s = self._place(since)
        slowdown = OpenSlowdown(change, first, at_s, self._step, self._last.run if self._last else 0)
        slowdown.restarted, slowdown.median = True, before.median_s
        return self._report(slowdown)

    def _is_more_work(self, change: Change, count: int) -> bool:
        """Returns whether steps take longer while throughput stays the same, because a step has more work."""
        if self._by_throughput:
            return False
        known = [*dropwhile(lambda one: one[4] is None, self._recent)]  # a run's first record may have none
        pairs = [(value, rate) for _, value, _, _, rate in known if rate is not None and rate > 0]
        if len(pairs) < len(known) or len(pairs) - count < 10:
            return False
        old, new = pairs[:-count], pairs[-count:]
        # A running average of throughput hardly changes, whatever happens to single steps.
        work = [value * rate for value, rate in old]
        if spread(work) > 0.5 * spread([value for value, _ in old]) + 0.002:
            return False
        fell = 1 - median(rate for _, rate in new) / median(rate for _, rate in old)
        return fell < STAYS_SHARE * (1 - change.before / change.after)

    def _is_planned(self, change: Change) -> bool:
        """Returns whether the log announces that steps have more work from then on."""
        last = self._last
        if last is None:
            return False
        values = [value for _, value, *_ in self._recent]
        return self._plan.explains(
            change, values, has_epoch=last.epoch is not None, has_batch=last.batch is not None
        )

    def _what(self, change: Change, count: int) -> str:
        pairs = [(value, data) for _, value, _, data, _ in self._recent if data is not None]
        if len(pairs) < len(self._recent) or len(pairs) - count < 10:
            return "everyone"
        old, new = pairs[:-count], pairs[-count:]
        added = median(value for value, _ in new) - median(value for value, _ in old)
        data = median(data for _, data in new) - median(data for _, data in old)
        return "data" if added > 0 and data > listing.DATA_SHARE * added else "everyone"

    def _slowdown(self, slowdown: OpenSlowdown) -> Slowdown:
        ratio = slowdown.after / slowdown.before
        lost_s = max(slowdown.after - slowdown.before, 0.0) * slowdown.steps
        cost = None if self._by_throughput else lost_s * (self._settings.ranks or 1) / 3600
        english, chinese = wording.explain(
            slowdown.kind,
            slowdown.what,
            slowdown.first,
            slowdown.last,
            slowdown.median,
            slowdown.median * ratio,
            cost,
            ranks_known=self._settings.ranks is not None,
            restarted=slowdown.restarted,
        )
        return Slowdown(
            first_step=slowdown.first,
            last_step=slowdown.last,
            before_s=slowdown.median,
            after_s=slowdown.median * ratio,
            ratio=ratio,
            kind=slowdown.kind,
            cost_gpu_hours=cost,
            explanation=english,
            explanation_zh=chinese,
            what=slowdown.what,
            run=slowdown.run,
            found_step=slowdown.found,
            since_s=slowdown.at_s,
        )

    def _in_words(self) -> str:
        if not self._open:
            return ""
        worst = max(self._open, key=lambda slowdown: slowdown.after / slowdown.before)
        since = f" since step {worst.first}" if worst.first is not None else ""
        return f"{wording.percent(worst.after / worst.before)}{since}"

"""Lays out step times as a chart: one axis through all runs of a training, with outliers and a cut scale.

Pure.

The HTML page and the PNG image both draw this chart.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from statistics import median

from msgspec import Struct

from holdfast.model.steps import CurvePoint, HeatMap, PhaseKind, Slowdown, StepReport
from holdfast.settings.times import duration

# What is drawn as the curve; the rest are single long steps, drawn as marks above it.
CURVE_KINDS = ("step", "data", "warmup")
# More than so many times the usual step is not allowed to flatten the rest of the curve ...
OUTLYING = 5.0
# ... where it would take up more than so much of the height.
CUT_RATIO = 3.0
HEADROOM = 1.15
HOURS_MIN = 0.01
# Beyond that a screen has fewer points than the heat map has columns.
HEAT_COLUMNS_MAX = 512
# A heat map's colours reach their ends between these ratios to the median of the step.
HEAT_REACH_MIN, HEAT_REACH_MAX = 1.05, 2.0
HEAT_REACH_QUANTILE = 0.998
WORST_QUANTILE = 0.9  # a rank that was slow for a tenth of the time is to be seen
SLOWEST = 10


class RunSpan(Struct, frozen=True, kw_only=True):
    """The steps of one run of the training on the x axis of the chart: x = step + offset.

    A run that repeats steps of the previous run is drawn behind it.
    """

    run: int
    first_step: int
    last_step: int
    offset: int

    @property
    def first_x(self) -> float:
        return self.first_step + self.offset

    @property
    def last_x(self) -> float:
        return self.last_step + self.offset


class Placed(Struct, frozen=True, gc=False):
    """A part of the step time curve with its position on the chart's x axis."""

    x: float
    first_step: int
    last_step: int
    median_s: float
    low_s: float
    high_s: float
    run: int
    kind: PhaseKind


class Band(Struct, frozen=True, kw_only=True):
    """A slowdown with its position on the chart's x axis. `index`: its number in the report's list of slowdowns."""

    first_x: float
    last_x: float
    before_s: float
    after_s: float
    label: str
    index: int


class Shade(Struct, frozen=True, kw_only=True):
    """A range of the chart's x axis in which the steps are of a special kind, such as warm-up."""

    first_x: float
    last_x: float
    kind: PhaseKind


class Dot(Struct, frozen=True, kw_only=True):
    """A single long step in the chart."""

    x: float
    y: float
    label: str


class Mark(Struct, frozen=True, kw_only=True):
    """An event at one step of the chart, such as a jump of the loss."""

    x: float
    label: str


class Chart(Struct, frozen=True, kw_only=True):
    """A chart of step times.

    `cut_s`: upper end of the visible scale in seconds, so that outliers do not flatten the curve; None if there are no
    outliers. `top_s`: the longest step.
    """

    runs: tuple[RunSpan, ...]
    curve: tuple[Placed, ...]
    long: tuple[Placed, ...]
    bands: tuple[Band, ...]
    shades: tuple[Shade, ...]
    spikes: tuple[Dot, ...]
    loss: tuple[Mark, ...]
    cut_s: float | None
    top_s: float

    @property
    def is_empty(self) -> bool:
        return not (self.curve or self.long)


class RankRatio(Struct, frozen=True, kw_only=True):
    """The step times of one rank relative to the median of all ranks: the median and the 90th percentile of the ratios."""

    rank: int
    median: float
    worst: float


class Heat(Struct, frozen=True, kw_only=True):
    """A heat map of step times by rank and step, relative to the median of each column.

    `reach`: the ratio with the strongest colour; `middle_s`: medians of the columns in seconds. `slowest`:
    the ranks that are slowest by 90th percentile.
    """

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    middle_s: tuple[float | None, ...]
    ratios: tuple[tuple[float | None, ...], ...]
    reach: float
    slowest: tuple[RankRatio, ...]


def chart(report: StepReport, curves: Sequence[CurvePoint]) -> Chart:
    points = _one_a_place([point for point in curves if _is_drawable(point)])
    runs = _spans(points)
    placed = [_placed(point, runs) for point in points]
    curve = [point for point in placed if point.kind in CURVE_KINDS]
    long = [point for point in placed if point.kind not in CURVE_KINDS]
    if not curve:  # whatever the steps are called, there is nothing else to draw
        curve, long = long, []
    spikes = _spikes(report, runs)
    cut_s, top_s = _heights(report, curve, [*(point.high_s for point in long), *(dot.y for dot in spikes)])
    return Chart(
        runs=runs,
        curve=tuple(curve),
        long=tuple(long),
        bands=_bands(report.slowdowns, runs),
        shades=_shades(curve) or _phase_shades(report, runs),
        spikes=spikes,
        loss=_loss(report, runs),
        cut_s=cut_s,
        top_s=top_s,
    )


def ticks(runs: Sequence[RunSpan], low: float, high: float, count: int) -> list[tuple[float, int]]:
    """Returns about `count` positions on the x axis and their steps: round steps of each run that is wide
    enough.
    """
    wanted = max(high - low, 1) / max(count, 1)
    found: list[tuple[float, int]] = []
    for span in runs:
        first, last = max(low, span.first_x), min(high, span.last_x)
        if last < first:
            continue
        every = _round_up(wanted)
        step = math.ceil((first - span.offset) / every) * every
        while step + span.offset <= last:
            x = float(step + span.offset)
            if not found or x - found[-1][0] >= wanted * 0.6:
                found.append((x, step))
            step += every
    return found


def column_ticks(steps: Sequence[int], count: int) -> list[tuple[float, int]]:
    """Returns round steps among the columns of a heat map with their positions; all steps if they are not
    increasing.
    """
    if len(steps) < 3 or any(high <= low for low, high in pairwise(steps)):
        return [(i + 0.5, steps[i]) for i in range(0, len(steps), max(1, math.ceil(len(steps) / count)))]
    every = _round_up((steps[-1] - steps[0]) / count)
    step, found = math.ceil(steps[0] / every) * every, []
    for column, (low, high) in enumerate(pairwise(steps)):
        while step < high:
            found.append((column + (step - low) / (high - low), step))
            step += every
    return found


def hours(value: float | None) -> str:
    """Formats a cost in GPU-hours; "unknown" for None."""
    if value is None:
        return "unknown"
    if 0 < value < HOURS_MIN:
        return f"under {HOURS_MIN} GPU-hours"
    return f"{value:,.0f} GPU-hours" if value >= 100 else f"{value:.3g} GPU-hours"


def steps_words(first: int | None, last: int | None) -> str:
    """Formats a range of steps: `step 7`, `steps 7 to 90`, `since step 7`."""
    if first is None:
        return "at unknown steps" if last is None else f"to step {last:,}"
    if last is None:
        return f"since step {first:,}"
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"


def ratios(map_: HeatMap | None, columns_max: int = HEAT_COLUMNS_MAX) -> Heat | None:
    """Returns the heat map with ratios instead of times; None if there is nothing to compare: fewer than two ranks, or no
    values.
    """
    if map_ is None or len(map_.ranks) < 2 or not map_.steps:
        return None
    columns = list(zip(*map_.values, strict=True)) if map_.values else []
    middle = [_middle(column) for column in columns]
    if not any(value is not None for value in middle):
        return None
    found = [[_ratio(value, mid) for value in column] for column, mid in zip(columns, middle, strict=True)]
    steps = map_.steps
    if len(columns) > columns_max:
        steps, middle, found = _fewer(steps, middle, found, columns_max)
    rows = tuple(tuple(row) for row in zip(*found, strict=True))
    return Heat(
        ranks=map_.ranks,
        steps=tuple(steps),
        middle_s=tuple(middle),
        ratios=rows,
        reach=_reach(rows),
        slowest=_slowest(map_.ranks, rows),
    )


# The axis ------------------------------------------------------------------------------------------------


def _is_drawable(point: CurvePoint) -> bool:
    return all(map(_is_time, (point.median_s, point.low_s, point.high_s)))


def _is_time(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value >= 0


def _one_a_place(points: list[CurvePoint]) -> list[CurvePoint]:
    """Returns curve points of all ranks together if there are any; otherwise joins the points of single
    ranks at each place.
    """
    whole = [point for point in points if point.rank is None]
    if whole:
        return sorted(whole, key=_place)
    return [
        _joined(list(group)) for _, group in groupby(sorted(points, key=_place), lambda point: _place(point))
    ]


def _place(point: CurvePoint) -> tuple[int, int, int, str]:
    return point.run, point.first_step, point.last_step, point.kind


def _joined(group: list[CurvePoint]) -> CurvePoint:
    first = group[0]
    return CurvePoint(
        first_step=first.first_step,
        last_step=first.last_step,
        median_s=median(point.median_s for point in group),
        low_s=min(point.low_s for point in group),
        high_s=max(point.high_s for point in group),
        run=first.run,
        kind=first.kind,
    )


def _spans(points: Iterable[CurvePoint]) -> tuple[RunSpan, ...]:
    found: list[RunSpan] = []
    for run, group in groupby(points, lambda point: point.run):
        steps = [step for point in group for step in (point.first_step, point.last_step)]
        first, last = min(steps), max(steps)
        behind = max((int(span.last_x) for span in found), default=first - 1)
        offset = max(0, behind + 1 - first) if found else 0
        found.append(RunSpan(run=run, first_step=first, last_step=last, offset=offset))
    return tuple(found)


def _placed(point: CurvePoint, runs: Sequence[RunSpan]) -> Placed:
    middle = (point.first_step + point.last_step) / 2
    return Placed(
        x=_x(middle, point.run, runs),
        first_step=point.first_step,
        last_step=point.last_step,
        median_s=point.median_s,
        low_s=point.low_s,
        high_s=point.high_s,
        run=point.run,
        kind=point.kind,
    )


def _x(step: float, run: int, runs: Sequence[RunSpan]) -> float:
    """Returns the position of a run's step on the x axis; a step outside the drawn range is put at the
    edge of its run.
    """
    span = next((one for one in runs if one.run == run), runs[-1])
    return min(max(step, span.first_step), span.last_step) + span.offset


def _run_of(step: int, runs: Sequence[RunSpan]) -> int:
    """Returns the last run that made this step, for items without a run."""
    return next(
        (span.run for span in reversed(runs) if span.first_step <= step <= span.last_step), runs[-1].run
    )


def _round_up(value: float) -> int:
    """Returns the next number of the series 1, 2, 5, 10, 20, 50, ..."""
    if value <= 1:
        return 1
    ten = 10 ** math.floor(math.log10(value))
    return int(next(times * ten for times in (1, 2, 5, 10) if times * ten >= value * (1 - 1e-9)))


# What stands out -----------------------------------------------------------------------------------------


def _bands(slowdowns: Sequence[Slowdown], runs: Sequence[RunSpan]) -> tuple[Band, ...]:
    if not runs:
        return ()
    found = []
    for index, slow in enumerate(slowdowns):
        if slow.first_step is None:
            continue
        span = next((one for one in runs if one.run == slow.run), runs[-1])
        last = span.last_step if slow.last_step is None else slow.last_step
        found.append(
            Band(
                first_x=_x(slow.first_step, slow.run, runs),
                last_x=_x(last, slow.run, runs),
                before_s=slow.before_s,
                after_s=slow.after_s,
                label=f"{slow.ratio:.2f}×",
                index=index,
            )
        )
    return tuple(found)


def _shades(curve: Sequence[Placed]) -> tuple[Shade, ...]:
    found = []
    for (kind, _run), group in groupby(curve, lambda point: (point.kind, point.run)):
        if kind != "step":
            points = list(group)
            half = [(point.last_step - point.first_step) / 2 for point in (points[0], points[-1])]
            found.append(
                Shade(first_x=points[0].x - half[0] - 0.5, last_x=points[-1].x + half[1] + 0.5, kind=kind)
            )
    return tuple(found)


def _phase_shades(report: StepReport, runs: Sequence[RunSpan]) -> tuple[Shade, ...]:
    """Returns shades for phases too short for the curve's resolution: consecutive steps in a single run."""
    if len(runs) != 1:
        return ()
    return tuple(
        Shade(
            first_x=_x(first, runs[0].run, runs) - 0.5,
            last_x=_x(last, runs[0].run, runs) + 0.5,
            kind=phase.kind,
        )
        for phase in report.phases
        if (first := phase.first_step) is not None
        and (last := phase.last_step) is not None
        and phase.kind != "step"
        and last - first + 1 == phase.count
    )


def _spikes(report: StepReport, runs: Sequence[RunSpan]) -> tuple[Dot, ...]:
    found = []
    for spike in report.spikes:
        if spike.first_step is None or not runs or not _is_time(spike.time_s):
            continue
        label = f"{duration(spike.time_s)}, {spike.ratio:.1f}× the usual step"
        if spike.kind:
            label += f": {spike.kind}"
        if spike.period is not None:
            label += f", every {spike.period:,} steps"
        elif spike.count > 1:
            label += f", {spike.count} steps"
        found.append(Dot(x=_x(spike.first_step, spike.run, runs), y=spike.time_s, label=label))
    return tuple(found)


def _loss(report: StepReport, runs: Sequence[RunSpan]) -> tuple[Mark, ...]:
    loss = report.loss
    places = [(spike.step, f"loss {spike.loss:.4g} after {spike.before:.4g}") for spike in loss.spikes]
    places += [(loss.nan_at, "loss is NaN or infinite"), (loss.diverged_at, "loss diverges")]
    return tuple(
        Mark(x=_x(step, _run_of(step, runs), runs), label=label)
        for step, label in places
        if step is not None and runs
    )


def _heights(
    report: StepReport, curve: Sequence[Placed], long_s: Sequence[float]
) -> tuple[float | None, float]:
    """Returns where to cut the scale (None if it need not be cut), and the highest value."""
    if not curve:
        return None, 0.0
    usual = median(point.median_s for point in curve)
    slow = [band.after_s for band in report.slowdowns if _is_time(band.after_s)]
    values = [point.high_s for point in curve] + [point.median_s for point in curve]
    bulk = max([value for value in values if value <= OUTLYING * usual] + slow, default=usual)
    top = max([*values, *long_s, *slow])
    return (bulk * HEADROOM if usual > 0 and top > CUT_RATIO * bulk * HEADROOM else None), top


# Ranks ---------------------------------------------------------------------------------------------------


def _middle(column: Sequence[float | None]) -> float | None:
    values = [value for value in column if value is not None and math.isfinite(value) and value >= 0]
    return median(values) if values else None


def _ratio(value: float | None, middle: float | None) -> float | None:
    return value / middle if value is not None and math.isfinite(value) and value > 0 and middle else None


def _fewer(
    steps: Sequence[int],
    middle: list[float | None],
    ratios: list[list[float | None]],
    columns_max: int,
) -> tuple[tuple[int, ...], list[float | None], list[list[float | None]]]:
    """Joins neighbouring columns of a heat map, with the mean of their ratios."""
    edges = [round(i * len(steps) / columns_max) for i in range(columns_max + 1)]
    groups = [(low, high) for low, high in pairwise(edges) if high > low]
    joined = [[_mean(row) for row in zip(*ratios[low:high], strict=True)] for low, high in groups]
    return (
        tuple(steps[low] for low, _ in groups),
        [_mean(middle[low:high]) for low, high in groups],
        joined,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _reach(rows: Sequence[Sequence[float | None]]) -> float:
    """Returns the ratio with the strongest colour: nearly all values are below it, so that one outlier
    hides nothing.
    """
    off = sorted(max(value, 1 / value) for row in rows for value in row if value)
    if not off:
        return HEAT_REACH_MIN
    return min(max(off[int((len(off) - 1) * HEAT_REACH_QUANTILE)], HEAT_REACH_MIN), HEAT_REACH_MAX)


def _slowest(
    ranks: Sequence[int], rows: Sequence[Sequence[float | None]], count: int = SLOWEST
) -> tuple[RankRatio, ...]:
    found = []
    for rank, row in zip(ranks, rows, strict=True):
        there = sorted(value for value in row if value is not None)
        if there:
            worst = there[int((len(there) - 1) * WORST_QUANTILE)]
            found.append(RankRatio(rank=rank, median=median(there), worst=worst))
    return tuple(sorted(found, key=lambda one: (-one.worst, one.rank))[:count])

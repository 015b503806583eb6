"""Formats the advice of `holdfast advise`: recommended settings, their gain, its uncertainty, what is
unknown.

Prints nothing.
"""

from collections.abc import Sequence

from holdfast.core.plurals import counted
from holdfast.core.reliability.advice import Advice
from holdfast.core.reliability.weibull import Range
from holdfast.settings.times import length
from holdfast.views.fleet.costs import gpu_hours
from holdfast.views.fleet.picture import CurvePicture, Mark
from holdfast.views.lines import Line

TICKS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 43_200.0, 172_800.0)


def report(advice: Advice, title: str, notes: Sequence[str] = ()) -> list[Line]:
    lines = [
        Line(f"{title}: {counted(advice.nodes, 'node')}, {counted(advice.gpus, 'GPU')}", "strong"),
        Line(),
    ]
    lines += _failures(advice)
    lines += _interval(advice)
    lines += _spares(advice)
    lines += _first_out(advice)
    lines += [Line(), Line("Not known", "strong"), *(Line(f"  {text}") for text in advice.unknown)]
    return [*lines, *(Line(f"note: {note}", "quiet") for note in notes)]


def _failures(advice: Advice) -> list[Line]:
    rate, shape = advice.per_1000_node_days, advice.shape
    return [
        Line("Failures", "strong"),
        Line(f"  {advice.known} in {gpu_hours(advice.node_days)} node-days"),
        Line(f"  {_range(rate)} per 1,000 node-days; of this job one in {_times(advice.mean_s)}"),
        Line(
            f"  clustering of failures: Weibull shape {_range(shape)} (1: none, below 1: failures "
            "come in "
            "bursts)"
        ),
    ]


def _interval(advice: Advice) -> list[Line]:
    found, costs = advice.interval, advice.costs
    if found is None or costs is None:
        return []
    lines = [Line(), Line("Checkpoint interval", "strong")]
    now = f"now {_length(advice.interval_s)}" if advice.interval_s else "now unknown"
    lines.append(
        Line(f"  {now}; best {_length(found.best_s)} ({_length(found.low_s)} to {_length(found.high_s)})")
    )
    goodput = f"  expected goodput {found.goodput:.2%} ({found.goodput_low:.2%} to {found.goodput_high:.2%})"
    lines.append(Line(goodput + (f", now {advice.now:.2%}" if advice.now is not None else "")))
    if advice.gain_gpu_hours is not None:
        lines.append(Line(f"  expected gain: {gpu_hours(advice.gain_gpu_hours)} GPU-hours a month"))
    lines.append(
        Line(f"  one save stops training for {costs.save_s:.3g} s, one failure for {_length(costs.down_s)}")
    )
    lines.append(
        Line(
            (
                f"  formulas for exponentially distributed failures: Young {_length(found.young_s)}, Daly "
                f"{_length(found.daly_s)}"
            ),
            "quiet",
        )
    )
    return lines


def _spares(advice: Advice) -> list[Line]:
    one = advice.spares
    now = f"now {advice.spares_now}; " if advice.spares_now is not None else ""
    return [
        Line(),
        Line("Spare nodes", "strong"),
        Line(f"  {now}enough for 95 % of the time: {one.p95}; for 99 %: {one.p99} ({one.low} to {one.high})"),
    ]


def _first_out(advice: Advice) -> list[Line]:
    if not advice.first_out:
        return []
    lines = [Line(), Line("Nodes to take out of service first", "strong")]
    return [
        *lines,
        *(Line(f"  {one.node}: {counted(one.faults, 'fault')}; {one.why}") for one in advice.first_out),
    ]


def _range(one: Range) -> str:
    return f"{gpu_hours(one.middle)} ({gpu_hours(one.low)} to {gpu_hours(one.high)})"


def _times(one: Range) -> str:
    return f"{_length(one.middle)} ({_length(one.low)} to {_length(one.high)})"


def _length(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 10.0:
        return f"{seconds:.2g} s"
    if seconds >= 7_200.0:
        return length(round(seconds / 60.0) * 60.0)
    return length(round(seconds))


def picture(advice: Advice, title: str) -> CurvePicture | None:
    """Returns the curve of goodput over the checkpoint interval; None if the cost of a checkpoint is
    unknown.
    """
    if advice.interval is None or not advice.curve:
        return None
    found = advice.interval
    marks = [Mark(f"best {_length(found.best_s)}", found.best_s, "#0b7a5e")]
    if advice.interval_s:
        marks.append(Mark(f"now {_length(advice.interval_s)}", advice.interval_s, "#c2410c"))
    marks.append(Mark(f"Young {_length(found.young_s)}", found.young_s, "#5b6270"))
    marks.append(Mark(f"Daly {_length(found.daly_s)}", found.daly_s, "#b9bdc6"))
    low, high = advice.curve[0][0], advice.curve[-1][0]
    return CurvePicture(
        title=f"Checkpoint interval of {title}",
        said=(advice.known, f"one in {_times(advice.mean_s)}"),
        points=advice.curve,
        marks=tuple(marks),
        ticks=tuple((tick, _length(tick)) for tick in TICKS_S if low <= tick <= high),
        x_name="checkpoint interval",
        y_name="expected goodput",
    )

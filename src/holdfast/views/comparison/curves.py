"""Builds the chart of a comparison: one panel per measure, one line per run. Does not print."""

from collections.abc import Sequence
from math import isfinite

from holdfast.core.compare.series import RunValues, middle
from holdfast.model.runs.comparison import Comparison, Measure
from holdfast.parsers.log_lines.secrets import masked
from holdfast.views.comparison.report import MEASURES
from holdfast.views.fleet.picture import LINE_COLOURS, LinesPicture, Panel, PanelLine

POINTS_MAX = 1_200  # of one line
SHOWN: tuple[Measure, ...] = ("loss", "grad_norm", "learning_rate")


def curves(runs: Sequence[RunValues], found: Comparison) -> LinesPicture:
    """Returns the panels; panels without values are left out."""
    panels = [_panel(MEASURES["en"][measure], [_values(run, measure) for run in runs]) for measure in SHOWN]
    panels.append(_panel("step time, s", [run.times_s for run in runs]))
    marks = tuple(one.step for one in found.others if one.step is not None)
    first = min(marks, default=None)
    said = f"different from step {first} on" if first is not None else "equal in all common steps"
    return LinesPicture(
        title=" beside ".join(masked(run.name) for run in runs[:3]),
        said=(said,),
        names=tuple(masked(run.name) for run in runs),
        panels=tuple(panel for panel in panels if any(line.points for line in panel.lines)),
        marks=tuple(sorted(set(marks))),
        x_name="step",
    )


def _values(run: RunValues, measure: Measure) -> dict[int, float]:
    return {step: middle(cell) for step, cell in run.columns[measure].cells.items()}


def _panel(name: str, lines: Sequence[dict[int, float]]) -> Panel:
    return Panel(
        name=name,
        lines=tuple(
            PanelLine(colour=LINE_COLOURS[place % len(LINE_COLOURS)], points=_points(values))
            for place, values in enumerate(lines)
        ),
    )


def _points(values: dict[int, float]) -> tuple[tuple[float, float], ...]:
    """Returns at most POINTS_MAX points: the lowest and the highest value of each interval of steps."""
    points = [(float(step), value) for step, value in sorted(values.items()) if isfinite(value)]
    if len(points) <= POINTS_MAX:
        return tuple(points)
    size = -(-2 * len(points) // POINTS_MAX)
    kept: list[tuple[float, float]] = []
    for at in range(0, len(points), size):
        some = points[at : at + size]
        kept += sorted({min(some, key=lambda point: point[1]), max(some, key=lambda point: point[1])})
    return tuple(kept)

"""Draws step times into a PNG image with matplotlib, which is an optional dependency.

matplotlib is imported only when an image is drawn, and its global state is not changed.
"""

import importlib
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.core.plurals import counted
from holdfast.model.steps import CurvePoint, HeatMap, StepReport
from holdfast.settings.times import duration
from holdfast.views.steps.chart import (
    Chart,
    Heat,
    chart,
    column_ticks,
    hours,
    ratios,
    steps_words,
    ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, DPI = 12.0, 110
CURVE_IN, HEAT_IN_MIN, HEAT_IN_MAX = 4.6, 1.6, 5.0
LINE_IN = 0.2
LINES_MAX = 12
LINE_CHARACTERS = 150
COLOURS = {
    "curve": "#1f5fc4",
    "slow": "#c2410c",
    "spike": "#b0208f",
    "run": "#5b6270",
    "loss": "#a01030",
    "checkpoint": "#0b7a5e",
    "evaluation": "#7a4fd0",
    "compile": "#8a6200",
    "warmup": "#8a6200",
    "data": "#00788f",
    "step": "#1f5fc4",
}
TEXT, QUIET, GRID = "#1b1e24", "#5b6270", "#e8eaee"
HEAT_COLOURS = ("#2166ac", "#f1f1ee", "#c0202a")
TRIANGLES_MAX = 130  # of one kind side by side at the upper edge
NO_VALUE = "#b9bdc6"


class PlotUnavailable(Exception):
    """Raised when the image cannot be drawn here. The message says what to do."""


def write_png(
    path: Path, report: StepReport, curves: Sequence[CurvePoint], heat: HeatMap | None, title: str
) -> None:
    """Writes the PNG image.

    Raises PlotUnavailable if matplotlib is missing, and OSError if the file cannot be written.
    """
    drawn, map_ = chart(report, curves), ratios(heat)
    marked = {rank for straggler in report.stragglers for rank in straggler.ranks}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font lacks: they are drawn as boxes
        _figure(report, drawn, map_, marked, title).savefig(
            path, format="png", metadata={"Software": f"holdfast {__version__}"}
        )


def _figure(report: StepReport, drawn: Chart, map_: Heat | None, marked: set[int], title: str) -> "Figure":
    words = _words(report)
    lines_in = LINE_IN * (len(words) + 1) if words else 0.0
    heat_in = 0.0 if map_ is None else min(max(len(map_.ranks) * 0.16, HEAT_IN_MIN), HEAT_IN_MAX) + 0.9
    head_in = 1.0
    high = head_in + CURVE_IN + heat_in + lines_in + 0.45
    figure: Figure = _matplotlib("figure").Figure(figsize=(WIDTH_IN, high), dpi=DPI, facecolor="white")
    top = _texts(figure, report, title, high)
    left, wide = 0.075, 0.85
    top -= CURVE_IN / high
    _curve(figure.add_axes((left, top + 0.55 / high, wide, (CURVE_IN - 0.9) / high)), drawn)
    if map_ is not None:
        top -= heat_in / high
        _heat(figure, (left, top + 0.35 / high, wide, (heat_in - 0.9) / high), map_, marked)
    for number, line in enumerate(words):
        _say(figure, 0.03, top - (0.45 + LINE_IN * number) / high, line, size=9, colour=TEXT)
    return figure


def _matplotlib(module: str) -> Any:
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise PlotUnavailable(
            f"a PNG needs matplotlib: pip install 'holdfast[plot]', or write an .html file ({error})"
        ) from error


# Words ---------------------------------------------------------------------------------------------------


def _say(figure: "Figure", x: float, y: float, text: str, *, size: float, colour: str, **more: Any) -> None:
    """Draws a text; dollar signs in log text are not read as formulas."""
    figure.text(x, y, _one_line(text), fontsize=size, color=colour, parse_math=False, **more)


def _one_line(text: str) -> str:
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return plain if len(plain) <= LINE_CHARACTERS else plain[: LINE_CHARACTERS - 1] + "…"


def _texts(figure: "Figure", report: StepReport, title: str, high: float) -> float:
    """Draws the lines at the top, and returns the position below them."""
    _say(figure, 0.03, 1 - 0.38 / high, title, size=15, colour=TEXT, weight="bold")
    parts = [
        report.framework or "framework not recognised",
        f"median {duration(report.median_step_time_s)} a step",
        f"{report.iteration_lines:,} records",
    ]
    if report.first.step is not None and report.last.step is not None:
        parts.append(f"steps {report.first.step:,} to {report.last.step:,}")
    if report.runs > 1:
        parts.append(counted(report.runs, "run"))
    parts.append(f"{len(report.slowdowns)} slowdown{'' if len(report.slowdowns) == 1 else 's'}")
    costs = [slow.cost_gpu_hours for slow in report.slowdowns if slow.cost_gpu_hours is not None]
    if costs:
        parts.append(f"cost {hours(sum(costs))}")
    if report.loss.last is not None:
        parts.append(f"loss {report.loss.last:.5g}")
    _say(figure, 0.03, 1 - 0.66 / high, "  ·  ".join(parts), size=10, colour=QUIET)
    return 1 - 0.9 / high


def _words(report: StepReport) -> list[str]:
    """Returns the text below the plots: what a tooltip says on the page."""
    said = [
        f"slowdown {slow.ratio:.2f}×, {steps_words(slow.first_step, slow.last_step)}"
        f"{f', run {slow.run + 1}' if slow.run else ''}: {duration(slow.before_s)} → {duration(slow.after_s)}"
        f"{'' if slow.cost_gpu_hours is None else f', {hours(slow.cost_gpu_hours)}'}: {slow.explanation}"
        for slow in report.slowdowns
    ]
    said += [f"slow rank: {one.explanation}" for one in report.stragglers]
    if report.loss.nan_at is not None:
        said.append(f"the loss is NaN or infinite from step {report.loss.nan_at:,} on")
    said += [f"note: {note}" for note in report.notes]
    if len(said) > LINES_MAX:
        said = [*said[: LINES_MAX - 1], f"and {len(said) - LINES_MAX + 1} more"]
    return said


# The curve -----------------------------------------------------------------------------------------------


def _curve(axes: "Axes", drawn: Chart) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if drawn.is_empty:
        axes.set_axis_off()
        axes.text(0, 1, "There are no step times to draw.", fontsize=11, color=QUIET, va="top")
        return
    first, last = drawn.runs[0].first_x, max(span.last_x for span in drawn.runs)
    pad = max((last - first) * 0.01, 0.5)
    axes.set_xlim(first - pad, last + pad)
    top = drawn.cut_s if drawn.cut_s is not None else max(drawn.top_s * 1.06, 1e-6)
    axes.set_ylim(0, top)
    _backdrop(axes, drawn)
    _line(axes, drawn)
    _single(axes, drawn, top)
    _labels(axes, drawn, last - first)
    _axes(axes, drawn, first - pad, last + pad)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.13),
            ncols=8,
            frameon=False,
            fontsize=9,
            labelcolor=QUIET,
            handlelength=1.4,
            columnspacing=1.4,
        )


def _backdrop(axes: "Axes", drawn: Chart) -> None:
    kinds: set[str] = set()
    for shade in drawn.shades:
        label = None if shade.kind in kinds else shade.kind
        axes.axvspan(shade.first_x, shade.last_x, color=COLOURS[shade.kind], alpha=0.16, lw=0, label=label)
        kinds.add(shade.kind)
    for number, band in enumerate(drawn.bands):
        axes.axvspan(
            band.first_x,
            band.last_x,
            color=COLOURS["slow"],
            alpha=0.13,
            lw=0,
            label="slowdown" if number == 0 else None,
        )
        axes.hlines(band.before_s, band.first_x, band.last_x, COLOURS["slow"], "dashed", lw=0.9)
        axes.hlines(band.after_s, band.first_x, band.last_x, COLOURS["slow"], "solid", lw=0.9)


def _line(axes: "Axes", drawn: Chart) -> None:
    for number, span in enumerate(drawn.runs):
        points = [point for point in drawn.curve if point.run == span.run]
        xs = [point.x for point in points]
        axes.fill_between(
            xs,
            [point.low_s for point in points],
            [point.high_s for point in points],
            color=COLOURS["curve"],
            alpha=0.22,
            lw=0,
        )
        axes.plot(
            xs,
            [point.median_s for point in points],
            color=COLOURS["curve"],
            lw=1.5,
            marker="o" if len(points) < 60 else "",
            ms=3,
            label="median of several steps" if number == 0 else None,
        )


def _single(axes: "Axes", drawn: Chart, top: float) -> None:
    """Draws single long steps; those above the scale become triangles at its upper edge."""
    marks: list[tuple[str, float, float]] = [(point.kind, point.x, point.median_s) for point in drawn.long]
    marks += [("single long step", dot.x, dot.y) for dot in drawn.spikes]
    gap = (drawn.runs[-1].last_x - drawn.runs[0].first_x) / TRIANGLES_MAX
    over = [point.x for point in drawn.curve if point.high_s > top]
    cut = len(over)
    axes.plot(
        _apart(over, gap), [top] * len(_apart(over, gap)), "^", color=COLOURS["curve"], ms=5, clip_on=False
    )
    for kind in dict.fromkeys(kind for kind, _, _ in marks):
        colour = COLOURS.get(kind, COLOURS["spike"])
        shape = "o" if kind == "single long step" else "s"
        below = [(x, y) for name, x, y in marks if name == kind and y <= top]
        above = [x for name, x, y in marks if name == kind and y > top]
        cut += len(above)
        axes.plot(*_unzipped(below), shape, color=colour, ms=4, label=kind if below else None)
        edge = _apart(above, gap)
        axes.plot(
            edge,
            [top] * len(edge),
            "^",
            color=colour,
            ms=5,
            clip_on=False,
            label=None if below else kind,
        )
    if drawn.cut_s is not None:
        note = f"▲ {cut:,} longer than the scale shows, up to {duration(drawn.top_s)}"
        axes.annotate(
            note, (1, 0), (0, -34), "axes fraction", "offset points", ha="right", fontsize=9, color=QUIET
        )


def _apart(xs: Sequence[float], gap: float) -> list[float]:
    """Returns the positions that do not overlap the previous one when drawn at the edge."""
    found: list[float] = []
    for x in sorted(xs):
        if not found or x - found[-1] >= gap:
            found.append(x)
    return found


def _unzipped(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def _labels(axes: "Axes", drawn: Chart, wide: float) -> None:
    """Draws labels above the curve, a row for each kind; a label that would touch the previous one is left
    out.
    """
    rows: list[tuple[str, list[tuple[float, str]]]] = []
    if len(drawn.runs) > 1:
        starts = [
            (span.first_x - (0.5 if number else 0), f"run {span.run + 1}")
            for number, span in enumerate(drawn.runs)
        ]
        for x, _ in starts:
            axes.axvline(x, color=COLOURS["run"], lw=0.9)
        rows.append(("run", starts))
    if drawn.bands:
        rows.append(("slow", sorted((band.first_x, band.label) for band in drawn.bands)))
    if drawn.loss:
        for mark in drawn.loss:
            axes.axvline(mark.x, color=COLOURS["loss"], lw=0.9, ls=":")
        rows.append(("loss", sorted((mark.x, mark.label) for mark in drawn.loss)))
    for number, (name, labels) in enumerate(reversed(rows)):
        free = -math.inf
        for x, text in labels:
            if x < free:
                continue
            axes.annotate(
                text,
                (x, 1),
                (2, 7 + 12 * number),
                ("data", "axes fraction"),
                "offset points",
                fontsize=9,
                color=COLOURS[name],
            )
            free = x + (len(text) + 1.5) * max(wide, 1) / 160


def _axes(axes: "Axes", drawn: Chart, low: float, high: float) -> None:
    places = ticks(drawn.runs, low, high, 12)
    axes.set_xticks([x for x, _ in places], [f"{step:,}" for _, step in places])
    ticker = _matplotlib("ticker")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _tick(value)))
    axes.grid(True, color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=QUIET, labelsize=9, length=0)
    axes.set_xlabel("step", fontsize=9, color=QUIET)
    for spine in axes.spines.values():
        spine.set_color(GRID)


def _tick(value_s: float) -> str:
    if value_s <= 0:
        return "0"
    if value_s < 0.001:
        return f"{value_s * 1e6:g} µs"
    if value_s < 1:
        return f"{value_s * 1000:g} ms"
    return f"{value_s:g} s"


# The heat map --------------------------------------------------------------------------------------------


def _heat(figure: "Figure", place: tuple[float, float, float, float], map_: Heat, marked: set[int]) -> None:
    axes = figure.add_axes(place)
    colors = _matplotlib("colors")
    palette = colors.LinearSegmentedColormap.from_list("ratio", HEAT_COLOURS)
    palette.set_bad(NO_VALUE)
    end = math.log(map_.reach)
    # No more rows than there are pixels, or whole ranks would be left out.
    rows_max = int(place[3] * figure.get_figheight() * DPI)
    rows = [
        [math.nan if value is None else math.log(value) for value in row]
        for row in _folded(map_.ratios, rows_max)
    ]
    image = axes.imshow(
        rows, cmap=palette, vmin=-end, vmax=end, aspect="auto", interpolation="nearest",
        extent=(0, len(map_.steps), len(map_.ranks), 0),
    )  # fmt: skip
    axes.set_title(
        "step time of each rank relative to the median of all", fontsize=10, color=TEXT, loc="left"
    )
    every = max(1, math.ceil(len(map_.ranks) / 16))
    shown = range(0, len(map_.ranks), every if every < 3 else 2 ** math.ceil(math.log2(every)))
    axes.set_yticks([row + 0.5 for row in shown], [f"{map_.ranks[row]:,}" for row in shown])
    places = column_ticks(map_.steps, 12)
    axes.set_xticks([x for x, _ in places], [f"{step:,}" for _, step in places])
    axes.set_ylabel("rank", fontsize=9, color=QUIET)
    axes.set_xlabel("step", fontsize=9, color=QUIET)
    axes.tick_params(colors=QUIET, labelsize=9, length=0)
    for row, rank in enumerate(map_.ranks):
        if rank in marked:
            axes.annotate(
                "◂", (1, row + 0.5), (2, 0), ("axes fraction", "data"), "offset points",
                va="center", fontsize=9, color=COLOURS["slow"],
            )  # fmt: skip
    bar = figure.colorbar(image, cax=figure.add_axes((place[0] + place[2] + 0.02, place[1], 0.01, place[3])))
    bar.set_ticks([-end, 0, end], labels=[f"{1 / map_.reach:.2f}×", "1×", f"{map_.reach:.2f}×"])
    bar.ax.tick_params(colors=QUIET, labelsize=8, length=0)


def _folded(rows: Sequence[Sequence[float | None]], rows_max: int) -> Sequence[Sequence[float | None]]:
    """Joins rows that share a line of pixels, each cell with the value that differs most from the median."""
    if len(rows) <= rows_max:
        return rows
    edges = [round(i * len(rows) / rows_max) for i in range(rows_max + 1)]
    return [
        [_farthest(cells) for cells in zip(*rows[edges[i] : edges[i + 1]], strict=True)]
        for i in range(rows_max)
    ]


def _farthest(cells: Sequence[float | None]) -> float | None:
    return max((cell for cell in cells if cell), key=lambda cell: max(cell, 1 / cell), default=None)

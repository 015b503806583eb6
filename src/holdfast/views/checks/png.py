"""Draws benchmark results into a PNG image with matplotlib, which is an optional dependency."""

import importlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.model.checks import FAIL, PASS, WARN
from holdfast.views.checks.chart import Chart, Curve, Panel, Row, number, of_bytes
from holdfast.views.steps.png import PlotUnavailable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, DPI = 12.0, 110
ROW_IN, HEAD_IN, PANEL_IN, CROWDED_IN = 0.24, 1.0, 0.95, 3.0
HEIGHT_IN_MAX = 500.0  # 55,000 pixels: what image libraries still take
LABEL_CHARACTERS = 40
COLOURS = {PASS: "#1f5fc4", WARN: "#8a6200", FAIL: "#a01030", "unsure": "#c3c7cf"}
TEXT, QUIET, GRID, FIRST = "#1b1e24", "#5b6270", "#e8eaee", "#b0208f"
LINES = ("#1f5fc4", "#c2410c", "#0b7a5e", "#b0208f", "#7a4fd0", "#8a6200", "#00788f", "#5b6270")


def write_png(path: Path, drawn: Chart, title: str, said: Sequence[str] = ()) -> None:
    """Writes the PNG image.

    Raises PlotUnavailable if matplotlib is missing, and OSError if the file cannot be written.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font lacks: they are drawn as boxes
        _figure(drawn, title, said).savefig(
            path, format="png", metadata={"Software": f"holdfast {__version__}"}
        )


def _figure(drawn: Chart, title: str, said: Sequence[str]) -> "Figure":
    heights = [_height(panel) for panel in drawn.panels] + [CROWDED_IN] * len(drawn.curves)
    high = min(HEIGHT_IN_MAX, HEAD_IN + sum(height + PANEL_IN for height in heights) + 0.3)
    figure: Figure = _matplotlib("figure").Figure(figsize=(WIDTH_IN, high), dpi=DPI, facecolor="white")
    _say(figure, 1 - 0.4 / high, title, size=15, weight="bold")
    _say(figure, 1 - 0.7 / high, "  ·  ".join(said) or " ", size=10, colour=QUIET)
    if drawn.is_empty:
        _say(figure, 1 - 1.0 / high, "No benchmark returned a value.", size=11, colour=QUIET)
    top = 1 - HEAD_IN / high
    drawn_all: list[Panel | Curve] = [*drawn.panels, *drawn.curves]
    for one, height in zip(drawn_all, heights, strict=True):
        top -= (height + PANEL_IN) / high
        left = 0.24 if isinstance(one, Panel) and not one.is_crowded else 0.11
        axes = figure.add_axes((left, top + 0.42 / high, 0.96 - left, height / high))
        _drawn(axes, one)
    return figure


def _height(panel: Panel) -> float:
    return CROWDED_IN if panel.is_crowded else ROW_IN * max(len(panel.rows), 2)


def _drawn(axes: "Axes", one: Panel | Curve) -> None:
    beside = f" · {one.model}" if isinstance(one, Curve) and one.model else ""
    axes.set_title(_plain(one.title + beside), fontsize=11, color=TEXT, loc="left", parse_math=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(GRID)
    axes.tick_params(colors=QUIET, labelsize=9, length=0)
    axes.set_axisbelow(True)
    if isinstance(one, Curve):
        _lines(axes, one)
    elif one.is_crowded:
        _points(axes, one)
    else:
        _bars(axes, one)


def _bars(axes: "Axes", panel: Panel) -> None:
    places = range(len(panel.rows))
    axes.grid(True, axis="x", color=GRID, lw=0.8)
    axes.barh(
        places, [row.value for row in panel.rows], height=0.62, color=[_colour(row) for row in panel.rows]
    )
    axes.set_ylim(len(panel.rows) - 0.4, -0.6)
    axes.set_xlim(0, (panel.top or 1.0) * 1.2)
    axes.set_yticks(
        list(places), [_plain(row.label)[-LABEL_CHARACTERS:] for row in panel.rows], parse_math=False
    )
    for place, row in zip(places, panel.rows, strict=True):
        axes.annotate(
            f"{number(row.value)} {panel.unit}", (1, place), (-4, 0), ("axes fraction", "data"),
            "offset points", ha="right", va="center", fontsize=9, color=QUIET, parse_math=False,
        )  # fmt: skip
        if row.first is not None:
            axes.vlines(row.first, place - 0.42, place + 0.42, FIRST, lw=2)
    if panel.middle:
        axes.axvline(panel.middle, color=TEXT, lw=1.2)
    _below(axes, panel)


def _points(axes: "Axes", panel: Panel) -> None:
    rows = sorted(panel.rows, key=lambda row: row.value)
    axes.grid(True, axis="y", color=GRID, lw=0.8)
    axes.scatter(range(len(rows)), [row.value for row in rows], s=12, c=[_colour(row) for row in rows])
    axes.set_ylim(0, (panel.top or 1.0) * 1.08)
    axes.set_xticks([])
    axes.set_ylabel(panel.unit, fontsize=9, color=QUIET)
    if panel.middle:
        axes.axhline(panel.middle, color=TEXT, lw=1.0)
    _below(axes, panel)


def _below(axes: "Axes", panel: Panel) -> None:
    said = [panel.model] if panel.model else []
    if panel.middle:
        said.append(f"median {number(panel.middle)} {panel.unit} of {len(panel.rows)} (line)")
    if panel.is_crowded and panel.lowest:
        said.append(panel.lowest)
    if any(row.first is not None for row in panel.rows):
        said.append("mark: first measured value")
    if any(not row.is_sure for row in panel.rows):
        said.append("grey: not compared, because other processes were running")
    axes.annotate(
        _plain("  ·  ".join(said)), (0, 0), (0, -30), "axes fraction", "offset points",
        fontsize=9, color=QUIET, annotation_clip=False, parse_math=False,
    )  # fmt: skip


def _lines(axes: "Axes", curve: Curve) -> None:
    lines = curve.shown
    axes.grid(True, color=GRID, lw=0.8)
    for place, line in enumerate(lines):
        axes.plot(
            [size for size, _ in line.points],
            [value for _, value in line.points],
            color=LINES[place % len(LINES)],
            marker="o",
            ms=4,
            lw=1.6,
            label=_plain(line.label).replace("$", r"\$"),
        )
    axes.set_xscale("log", base=2)
    sizes = sorted({size for line in lines for size, _ in line.points})
    shown = sizes[:: max(1, -(-len(sizes) // 9))]
    axes.set_xticks(shown, [of_bytes(size) for size in shown])
    axes.minorticks_off()
    axes.set_ylim(0, max(value for line in lines for _, value in line.points) * 1.08 or 1.0)
    axes.set_ylabel(curve.unit, fontsize=9, color=QUIET)
    axes.legend(frameon=False, fontsize=9, labelcolor=QUIET, loc="upper left", ncols=4)
    if len(lines) < len(curve.lines):
        said = f"the lowest {len(lines)} of {len(curve.lines)}"
        axes.annotate(said, (0, 0), (0, -30), "axes fraction", "offset points", fontsize=9, color=QUIET)


def _colour(row: Row) -> str:
    return COLOURS[row.status] if row.is_sure else COLOURS["unsure"]


def _say(figure: "Figure", y: float, text: str, *, size: float, colour: str = TEXT, **more: Any) -> None:
    figure.text(0.03, y, _plain(text), fontsize=size, color=colour, parse_math=False, **more)


def _plain(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _matplotlib(module: str) -> Any:
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise PlotUnavailable(
            f"a PNG needs matplotlib: pip install 'holdfast[plot]', or write an .html file ({error})"
        ) from error

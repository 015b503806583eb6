"""Writes a chart about a fleet to a file: PNG with matplotlib (an optional dependency) or HTML, by the
file's suffix.
"""

import importlib
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.views.fleet.page import html_page
from holdfast.views.fleet.picture import BarsPicture, CurvePicture, LinesPicture, Picture, colour_of
from holdfast.views.steps.png import PlotUnavailable

WIDE_IN, DPI = 11.0, 110
TEXT, QUIET, GRID = "#1b1e24", "#5b6270", "#e8eaee"


class NotDrawn(Exception):
    """Raised when the chart could not be written. The message says why and what to do."""


def draw(path: Path, drawn: Picture) -> None:
    """Writes a chart to a file. Raises NotDrawn."""
    try:
        if path.suffix.lower() == ".png":
            figure = _drawn(drawn)
            figure.savefig(path, format="png", metadata={"Software": f"holdfast {__version__}"})
        else:
            path.write_text(html_page(drawn), encoding="utf-8")
    except PlotUnavailable as error:
        raise NotDrawn(str(error)) from error
    except OSError as error:
        raise NotDrawn(f"{path} cannot be written: {error.strerror or error}") from error


def _drawn(drawn: Picture) -> Any:
    if isinstance(drawn, CurvePicture):
        return _curve(drawn)
    return _lines(drawn) if isinstance(drawn, LinesPicture) else _bars(drawn)


def _figure(high_in: float, drawn: Picture, left: float, below_in: float) -> tuple[Any, Any]:
    try:
        module = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise PlotUnavailable(
            f"a PNG needs matplotlib: pip install 'holdfast[plot]', or write an .html file ({error})"
        ) from error
    figure = module.Figure(figsize=(WIDE_IN, high_in), dpi=DPI, facecolor="white")
    figure.text(
        0.04, 1 - 0.35 / high_in, drawn.title, fontsize=14, weight="bold", color=TEXT, parse_math=False
    )
    said = "  ·  ".join(drawn.said)
    figure.text(0.04, 1 - 0.62 / high_in, said, fontsize=9, color=QUIET, parse_math=False)
    axes = figure.add_axes((left, below_in / high_in, 0.96 - left, 1 - (below_in + 0.9) / high_in))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=QUIET, labelsize=9, length=0)
    axes.set_axisbelow(True)
    return figure, axes


def _curve(drawn: CurvePicture) -> Any:
    figure, axes = _figure(5.0, drawn, 0.1, 0.7)
    axes.grid(True, color=GRID, lw=0.8)
    axes.plot([x for x, _ in drawn.points], [y for _, y in drawn.points], color=colour_of("computing"), lw=2)
    axes.set_xscale("log")
    axes.set_xticks([x for x, _ in drawn.ticks], [words for _, words in drawn.ticks])
    axes.minorticks_off()
    axes.set_xlim(drawn.points[0][0], drawn.points[-1][0])
    for mark in drawn.marks:
        axes.axvline(mark.x, color=mark.colour, lw=1.2, ls="--", label=mark.label)
    axes.set_xlabel(drawn.x_name, color=QUIET, fontsize=9)
    axes.set_ylabel(drawn.y_name, color=QUIET, fontsize=9)
    axes.legend(frameon=False, fontsize=9, labelcolor=QUIET)
    return figure


def _bars(drawn: BarsPicture) -> Any:
    figure, axes = _figure(2.1 + 0.38 * len(drawn.bars), drawn, 0.26, 1.1)
    places = range(len(drawn.bars))
    left = [0.0] * len(drawn.bars)
    for name in drawn.classes:
        shares = [dict(bar.parts).get(name, 0.0) for bar in drawn.bars]
        axes.barh(places, shares, left=left, height=0.62, color=colour_of(name), label=name)
        left = [before + share for before, share in zip(left, shares, strict=True)]
    axes.set_yticks(list(places), [f"{bar.label}  {bar.note}" for bar in drawn.bars], parse_math=False)
    axes.set_ylim(len(drawn.bars) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.legend(
        frameon=False, fontsize=8, labelcolor=QUIET, loc="upper center", bbox_to_anchor=(0.4, -0.08), ncols=6
    )
    return figure


def _lines(drawn: LinesPicture) -> Any:
    count = max(1, len(drawn.panels))
    high_in = 1.6 + 1.9 * count
    figure, axes = _figure(high_in, drawn, 0.1, 0.7)
    axes.set_axis_off()
    low, high = drawn.steps
    room = 1 - 1.6 / high_in
    for place, panel in enumerate(drawn.panels):
        top = 1 - 0.9 / high_in - room * place / count
        panel_axes = figure.add_axes((0.1, top - 0.8 * room / count, 0.86, 0.72 * room / count))
        panel_axes.grid(True, color=GRID, lw=0.8)
        panel_axes.tick_params(colors=QUIET, labelsize=8, length=0)
        for name, line in zip(drawn.names, panel.lines, strict=True):
            panel_axes.plot(
                [x for x, _ in line.points],
                [y for _, y in line.points],
                color=line.colour,
                lw=1.2,
                label=name,
            )
        for mark in drawn.marks:
            panel_axes.axvline(mark, color="#a01030", lw=1.0, ls="--")
        panel_axes.set_xlim(low, max(high, low + 1))
        panel_axes.set_title(panel.name, fontsize=9, color=QUIET, loc="left", parse_math=False)
        if not place:
            panel_axes.legend(frameon=False, fontsize=8, labelcolor=QUIET)
    figure.text(0.5, 0.12 / high_in, drawn.x_name, fontsize=9, color=QUIET)
    return figure

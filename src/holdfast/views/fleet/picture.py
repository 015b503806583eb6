"""Defines the charts of views/fleet: a curve over a logarithmic scale, stacked bars, and panels with lines
of several runs. Data only.
"""

from msgspec import Struct

COLOURS = {  # by cost class; others share the last
    "computing": "#1f5fc4",
    "checkpointing": "#0b7a5e",
    "repeated-steps": "#c2410c",
    "detection": "#b0208f",
    "diagnosis": "#7a4fd0",
    "starting": "#8a6200",
    "stragglers": "#00788f",
    "person": "#a01030",
    "waiting": "#5b6270",
}
OTHER_COLOUR = "#b9bdc6"
LINE_COLOURS = ("#1f5fc4", "#c2410c", "#0b7a5e", "#7a4fd0", "#8a6200", "#b0208f", "#00788f", "#5b6270")


class Mark(Struct, frozen=True):
    """A labelled vertical mark in a curve chart, at the value `x`."""

    label: str
    x: float
    colour: str


class CurvePicture(Struct, frozen=True, kw_only=True):
    """A chart with one curve over a logarithmic scale. `points`: (x, share), by ascending x.

    `ticks`: (x, label).
    """

    title: str
    said: tuple[str, ...]
    points: tuple[tuple[float, float], ...]
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    x_name: str
    y_name: str


class Bar(Struct, frozen=True, kw_only=True):
    """One bar of a stacked bar chart. `parts`: (cause, share), adding up to 1. `note`: text to the right of the
    bar.
    """

    label: str
    parts: tuple[tuple[str, float], ...]
    note: str = ""


class BarsPicture(Struct, frozen=True, kw_only=True):
    """A chart of stacked bars."""

    title: str
    said: tuple[str, ...]
    bars: tuple[Bar, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for bar in self.bars for name, share in bar.parts if share > 0.0))


class PanelLine(Struct, frozen=True):
    """The line of one run in a panel: (step, value) pairs by ascending step."""

    colour: str
    points: tuple[tuple[float, float], ...]


class Panel(Struct, frozen=True):
    """A chart panel with one measure of all runs, on a y axis of its own."""

    name: str
    lines: tuple[PanelLine, ...]


class LinesPicture(Struct, frozen=True, kw_only=True):
    """A chart of panels below each other over the same steps. `names`: names of the runs, in the order of each
    panel's lines.

    `marks`: steps at which a vertical line is drawn.
    """

    title: str
    said: tuple[str, ...]
    names: tuple[str, ...]
    panels: tuple[Panel, ...]
    marks: tuple[int, ...]
    x_name: str

    @property
    def steps(self) -> tuple[float, float]:
        """Returns the first and the last step of all lines."""
        found = [point[0] for panel in self.panels for line in panel.lines for point in line.points]
        return (min(found), max(found)) if found else (0.0, 1.0)


Picture = CurvePicture | BarsPicture | LinesPicture


def colour_of(name: str) -> str:
    return COLOURS.get(name, OTHER_COLOUR)

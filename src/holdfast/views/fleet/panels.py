"""Draws lines of several runs in panels, as SVG."""

from html import escape

from holdfast.views.fleet.picture import LinesPicture, Panel

WIDE, LEFT, RIGHT = 900, 80, 20
HIGH, GAP, TOP = 150, 46, 22  # of one panel, and between two
TICKS = 3
MARK_COLOUR = "#a01030"


def panels(drawn: LinesPicture) -> str:
    """Returns the legend and one SVG with all panels."""
    signs = "".join(
        f'<span><svg width="18" height="12" aria-hidden="true"><rect y="4" width="18" height="4" fill="{colour}"/></svg>'
        f"{escape(name)}</span>"
        for name, colour in zip(drawn.names, _colours(drawn), strict=False)
    )
    parts = [
        piece
        for place, panel in enumerate(drawn.panels)
        for piece in _panel(drawn, panel, TOP + place * (HIGH + GAP))
    ]
    high = TOP + len(drawn.panels) * (HIGH + GAP) + 10
    return (
        f'<p class="legend">{signs}</p><section><svg class="chart" viewBox="0 0 {WIDE} {high}" role="img" '
        f'aria-label="{escape(drawn.title)}">{"".join(parts)}</svg></section>'
    )


def _colours(drawn: LinesPicture) -> tuple[str, ...]:
    return tuple(line.colour for line in drawn.panels[0].lines) if drawn.panels else ()


def _panel(drawn: LinesPicture, panel: Panel, top: int) -> list[str]:
    first, last = drawn.steps
    values = [y for line in panel.lines for _, y in line.points]
    low, high = min(values), max(values)

    def at_x(step: float) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * (step - first) / max(last - first, 1.0)

    def at_y(value: float) -> float:
        return top + HIGH - HIGH * (value - low) / (high - low) if high > low else top + HIGH / 2

    parts = [f'<text class="label" x="{LEFT}" y="{top - 6}">{escape(panel.name)}</text>']
    for tick in range(TICKS + 1):
        value = low + (high - low) * tick / TICKS
        parts.append(
            f'<line class="rule" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{at_y(value):.1f}" y2="{at_y(value):.1f}"/>'
            f'<text class="tick" text-anchor="end" x="{LEFT - 8}" y="{at_y(value) + 4:.1f}">{value:.4g}</text>'
        )
        step = first + (last - first) * tick / TICKS
        parts.append(
            f'<text class="tick" text-anchor="middle" x="{at_x(step):.1f}" y="{top + HIGH + 18}">{step:.0f}</text>'
        )
    for line in panel.lines:
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in line.points)
        parts.append(f'<polyline fill="none" stroke="{line.colour}" stroke-width="1.5" points="{path}"/>')
    parts += [
        f'<line x1="{at_x(mark):.1f}" x2="{at_x(mark):.1f}" y1="{top}" y2="{top + HIGH}" stroke="{MARK_COLOUR}" '
        f'stroke-dasharray="4 3"><title>{escape(drawn.x_name)} {mark}</title></line>'
        for mark in drawn.marks
    ]
    return parts

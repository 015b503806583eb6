"""Writes a curve or bar chart about a fleet as one HTML file with SVG, which loads and runs nothing."""

import math
from collections.abc import Sequence
from html import escape

from holdfast import __version__
from holdfast.views.checks.page import ASSETS, STYLES
from holdfast.views.fleet.panels import panels
from holdfast.views.fleet.picture import Bar, BarsPicture, CurvePicture, LinesPicture, Picture, colour_of

WIDE, HIGH, LEFT, RIGHT, ROW = 900, 320, 70, 30, 34
LABEL, NOTE = 140, 150
TICKS = 5


def html_page(drawn: Picture) -> str:
    style = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in STYLES)
    body = _body(drawn)
    head = "".join(f"<p>{escape(line)}</p>" for line in drawn.said)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f'<meta name="generator" content="holdfast {escape(__version__)}">\n'
        f"<title>{escape(drawn.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(drawn.title)}</h1>{head}</header>\n{body}\n</main>\n"
        f"<footer>holdfast {escape(__version__)}. This file loads nothing and sends nothing.</footer>\n</body>\n</html>\n"
    )


def _body(drawn: Picture) -> str:
    if isinstance(drawn, CurvePicture):
        return _curve(drawn)
    return panels(drawn) if isinstance(drawn, LinesPicture) else _bars(drawn)


def _svg(high: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<section><svg class="chart" viewBox="0 0 {WIDE} {high:.0f}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg></section>"
    )


def _curve(drawn: CurvePicture) -> str:
    xs = [math.log(x) for x, _ in drawn.points]
    low, high = min(xs), max(xs)
    bottom, top = _scale([y for _, y in drawn.points])

    def at_x(x: float) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * (math.log(x) - low) / max(high - low, 1e-9)

    def at_y(y: float) -> float:
        return HIGH - (HIGH - 20) * (y - bottom) / max(top - bottom, 1e-9)

    parts = []
    for step in range(TICKS + 1):
        value = bottom + (top - bottom) * step / TICKS
        parts.append(
            f'<line class="rule" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{at_y(value):.1f}" y2="{at_y(value):.1f}"/>'
            f'<text class="tick" text-anchor="end" x="{LEFT - 8}" y="{at_y(value) + 4:.1f}">{value:.1%}</text>'
        )
    parts += [
        f'<text class="tick" text-anchor="middle" x="{at_x(x):.1f}" y="{HIGH + 18}">{escape(words)}</text>'
        for x, words in drawn.ticks
        if low <= math.log(x) <= high
    ]
    path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in drawn.points)
    parts.append(
        f'<polyline fill="none" stroke="{colour_of("computing")}" stroke-width="2" points="{path}"/>'
    )
    for place, mark in enumerate(one for one in drawn.marks if low <= math.log(one.x) <= high):
        x = at_x(mark.x)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="12" y2="{HIGH}" stroke="{mark.colour}" stroke-dasharray="4 3"/>'
            f'<text x="{x + 4:.1f}" y="{HIGH - 12 - 16 * place}" fill="{mark.colour}">{escape(mark.label)}</text>'
        )
    parts.append(f'<text class="tick" x="{WIDE / 2}" y="{HIGH + 36}">{escape(drawn.x_name)}</text>')
    return _svg(HIGH + 44, drawn.title, parts)


def _scale(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = max(0.02, (high - low) * 0.05)
    return max(0.0, low - room), min(1.0, high + room)


def _bars(drawn: BarsPicture) -> str:
    parts = [piece for place, bar in enumerate(drawn.bars) for piece in _bar(bar, ROW * place)]
    signs = "".join(
        f'<span><svg width="18" height="12" aria-hidden="true"><rect width="18" height="12" fill="{colour_of(name)}"/>'
        f"</svg>{escape(name)}</span>"
        for name in drawn.classes
    )
    return f'<p class="legend">{signs}</p>' + _svg(ROW * len(drawn.bars) + 10, drawn.title, parts)


def _bar(bar: Bar, y: int) -> list[str]:
    wide = WIDE - LABEL - NOTE
    parts = [f'<text class="label" text-anchor="end" x="{LABEL - 8}" y="{y + 21}">{escape(bar.label)}</text>']
    x = float(LABEL)
    for name, share in bar.parts:
        size = wide * share
        words = escape(f"{bar.label}, {name}: {share:.2%}")
        parts.append(
            f'<rect x="{x:.2f}" y="{y + 6}" width="{size:.2f}" height="{ROW - 12}" fill="{colour_of(name)}">'
            f"<title>{words}</title></rect>"
        )
        x += size
    parts.append(f'<text class="value" x="{WIDE - NOTE + 10}" y="{y + 21}">{escape(bar.note)}</text>')
    return parts

"""Writes benchmark results as one HTML file with SVG charts and all values. It loads and runs nothing.

All text is escaped; the content security policy of the file allows only its own style sheets.
"""

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files

from holdfast import __version__
from holdfast.model.checks import FAIL, PASS, WARN
from holdfast.views.checks.chart import (
    Chart,
    Curve,
    Panel,
    Row,
    number,
    of_bytes,
    round_ticks,
)

ASSETS = files("holdfast") / "page_assets"
STYLES = ("colours.css", "steps.css", "checks.css")
WIDE, LABEL, VALUE = 900, 230, 130
ROW, BAR, AXIS = 22, 14, 26
HIGH = 260
LABEL_CHARACTERS = 34
ROWS_MAX = 200
_CLASS = {PASS: "good", WARN: "low", FAIL: "bad"}


def html_page(drawn: Chart, title: str, said: Sequence[str] = ()) -> str:
    """Returns the HTML page of a chart. `said`: lines of text below the title."""
    styles = [(ASSETS / name).read_text(encoding="utf-8") for name in STYLES]
    policy = (
        f"default-src 'none'; style-src {' '.join(map(_hash, styles))}; base-uri 'none'; form-action 'none'"
    )
    body = "\n".join([*map(_panel, drawn.panels), *map(_curve, drawn.curves)])
    if drawn.is_empty:
        body = '<p class="empty">No benchmark gave a number.</p>'
    head = "".join(f"<p>{escape(line)}</p>" for line in said)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="holdfast {escape(__version__)}">\n'
        f"<title>{escape(title)}</title>\n"
        + "".join(f"<style>{style}</style>\n" for style in styles)
        + f"</head>\n<body>\n<main>\n<header><h1>{escape(title)}</h1>{head}</header>\n{_legend(drawn)}{body}\n</main>\n"
        f"<footer>holdfast {escape(__version__)}. This file loads nothing and sends nothing.</footer>\n"
        "</body>\n</html>\n"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _legend(drawn: Chart) -> str:
    rows = [row for panel in drawn.panels for row in panel.rows]
    items = []
    if any(panel.middle for panel in drawn.panels):
        items.append(("middle", "median of its GPU model"))
        items.append(("low", "more than 7 % worse than the median"))
        items.append(("bad", "more than 25 % worse"))
    if any(row.first for row in rows):
        items.append(("first", "first measured value"))
    if any(not row.is_sure for row in rows):
        items.append(("unsure", "not compared, because other processes were running"))
    signs = "".join(
        _sign(kind, kind in ("middle", "first")) + f"{escape(words)}</span>" for kind, words in items
    )
    return f'<p class="legend">{signs}</p>\n' if items else ""


def _sign(kind: str, is_rule: bool) -> str:
    place = 'x="8" width="2"' if is_rule else 'width="18"'
    return f'<span><svg width="18" height="12" aria-hidden="true"><rect class="{kind}" {place} height="12"/></svg>'


# A number of each device ---------------------------------------------------------------------------------


def _panel(panel: Panel) -> str:
    drawn = _points(panel) if panel.is_crowded else _bars(panel)
    notes = [panel.model] if panel.model else []
    if panel.middle:
        notes.append(f"median {number(panel.middle)} {panel.unit} of {len(panel.rows)}")
    if panel.is_crowded and panel.lowest:
        notes.append(panel.lowest)
    table = _table(
        ("device", panel.unit, "relative to the median", "varies by", "first measured"),
        [
            (
                row.label,
                number(row.value),
                "" if row.off is None or not panel.middle else f"{row.value / panel.middle - 1:+.1%}",
                f"{row.spread:.1%}",
                "" if row.first is None else number(row.first),
            )
            for row in _worst_first(panel)
        ],
    )
    return _section(
        panel.title,
        f'<p class="hint">{escape(" · ".join(notes))}</p>{drawn}<details><summary>numbers</summary>{table}</details>',
    )


def _worst_first(panel: Panel) -> Sequence[Row]:
    return sorted(panel.rows, key=lambda row: -(row.off or 0.0)) if panel.is_crowded else panel.rows


def _bars(panel: Panel) -> str:
    high = ROW * len(panel.rows) + AXIS
    parts = [_grid(panel, high - AXIS)]
    parts += [_bar(panel, row, ROW * place) for place, row in enumerate(panel.rows)]
    if panel.middle:
        parts.append(_mark("middle", _x(panel, panel.middle), 0, high - AXIS))
    return _svg(high, panel.title, parts)


def _x(panel: Panel, value: float) -> float:
    return LABEL + (WIDE - LABEL - VALUE) * value / (panel.top or 1.0)


def _bar(panel: Panel, row: Row, y: int) -> str:
    words = f"{number(row.value)} {panel.unit}"
    kind = _CLASS[row.status] if row.is_sure else "unsure"
    wide = max(1.0, _x(panel, row.value) - LABEL)
    first = "" if row.first is None else _mark("first", _x(panel, row.first), y + 1, ROW - 2)
    return (
        f"<g><title>{escape(f'{row.label}: {words}')}</title>"
        f'<text class="label" x="{LABEL - 8}" y="{y + 15}">{escape(_short(row.label))}</text>'
        f'<rect class="{kind}" x="{LABEL}" y="{y + 4}" width="{wide:.1f}" height="{BAR}" rx="2"/>{first}'
        f'<text class="value" x="{WIDE - VALUE + 12}" y="{y + 15}">{escape(words)}</text></g>'
    )


def _points(panel: Panel) -> str:
    """Draws the values of many devices as points, ascending; the table names the ones that differ most."""
    rows = sorted(panel.rows, key=lambda row: row.value)
    top = panel.top or 1.0
    wide = WIDE - LABEL // 2 - 20

    def y(value: float) -> float:
        return HIGH - (HIGH - 10) * value / top

    parts = [_rules(top, panel.unit, y, LABEL // 2, WIDE - 20)]
    for place, row in enumerate(rows):
        x = LABEL // 2 + wide * (place + 0.5) / len(rows)
        kind = _CLASS[row.status] if row.is_sure else "unsure"
        words = escape(f"{row.label}: {number(row.value)} {panel.unit}")
        parts.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y(row.value):.1f}" r="3"><title>{words}</title></circle>'
        )
    if panel.middle:
        parts.append(
            f'<rect class="middle" x="{LABEL // 2}" y="{y(panel.middle) - 1:.1f}" width="{wide}" height="1.5"/>'
        )
    return _svg(HIGH + AXIS, panel.title, parts)


def _grid(panel: Panel, high: int) -> str:
    parts = []
    for value in round_ticks(panel.top):
        x = _x(panel, value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{high}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{high + 17}">{escape(number(value) if value else "0")}</text>'
        )
    return "".join(parts)


def _rules(top: float, unit: str, y: Callable[[float], float], left: float, right: float) -> str:
    parts = []
    for value in round_ticks(top):
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        words = f"{number(value)} {unit}" if value else "0"
        parts.append(f'<text class="label" x="{left - 8}" y="{y(value) + 4:.1f}">{escape(words)}</text>')
    return "".join(parts)


def _mark(kind: str, x: float, y: float, high: float) -> str:
    return f'<rect class="{kind}" x="{x - 1:.1f}" y="{y}" width="2" height="{high}"/>'


# A number over sizes -------------------------------------------------------------------------------------


def _curve(curve: Curve) -> str:
    lines = curve.shown
    left, right = LABEL // 2, WIDE - 20
    sizes = sorted({size for line in lines for size, _ in line.points})
    low, high = math.log2(max(sizes[0], 1.0)), math.log2(max(sizes[-1], 2.0))
    top = max(value for line in lines for _, value in line.points) or 1.0

    def x(size: float) -> float:
        return left + 12 + (right - left - 40) * (math.log2(max(size, 1.0)) - low) / max(high - low, 1e-9)

    def y(value: float) -> float:
        return HIGH - (HIGH - 10) * value / top

    parts = [_rules(top, curve.unit, y, left, right)]
    for size in sizes[:: max(1, math.ceil(len(sizes) / 9))]:
        parts.append(f'<text class="tick" x="{x(size):.1f}" y="{HIGH + 18}">{escape(of_bytes(size))}</text>')
    for place, line in enumerate(lines):
        path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in line.points)
        kind = f"line{place % 8}"
        dots = "".join(
            f'<circle class="{kind}" cx="{x(size):.1f}" cy="{y(value):.1f}" r="3"><title>'
            f"{escape(f'{line.label}, {of_bytes(size)}: {number(value)} {curve.unit}')}</title></circle>"
            for size, value in line.points
        )
        parts.append(f'<polyline class="{kind}" points="{path}"/>{dots}')
    signs = "".join(
        f'<span><svg width="18" height="12" aria-hidden="true"><circle class="line{place % 8}" cx="9" cy="6" r="5"/></svg>'
        f"{escape(line.label)}</span>"
        for place, line in enumerate(lines)
    )
    table = _table(
        ("size", *(line.label for line in lines)),
        [
            (
                of_bytes(size),
                *(number(dict(line.points)[size]) if size in dict(line.points) else "" for line in lines),
            )
            for size in sizes
        ],
    )
    left_out = len(curve.lines) - len(lines)
    more = f'<p class="hint">The lowest {len(lines)}; {left_out} more are left out.</p>' if left_out else ""
    return _section(
        curve.title,
        f'<p class="hint">{escape(curve.model)}</p>{_svg(HIGH + AXIS, curve.title, parts)}<p class="legend">{signs}</p>{more}'
        f"<details><summary>numbers, in {escape(curve.unit)}</summary>{table}</details>",
    )


# Parts ---------------------------------------------------------------------------------------------------


def _svg(high: int, title: str, parts: Iterable[str]) -> str:
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(title)}">'
        f'<svg class="chart" viewBox="0 0 {WIDE} {high}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg></div>"
    )


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>"


def _short(text: str) -> str:
    return text if len(text) <= LABEL_CHARACTERS else f"…{text[1 - LABEL_CHARACTERS :]}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    kinds = ["", *[' class="number"'] * (len(head) - 1)]
    names = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(head, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in rows[:ROWS_MAX]
    )
    more = (
        f'<p class="hint">{len(rows) - ROWS_MAX:,} more are left out here.</p>'
        if len(rows) > ROWS_MAX
        else ""
    )
    return (
        f'<div class="table"><table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>{more}'
    )

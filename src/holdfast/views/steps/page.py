"""Writes step times as one HTML file, with curves, heat map and all values; it loads nothing else.

All log text is escaped, and the content security policy allows only the file's two own scripts. The text is
in the HTML itself; scripts only draw.
"""

import base64
import hashlib
import struct
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

import msgspec

from holdfast import __version__
from holdfast.model.steps import CurvePoint, HeatMap, Slowdown, StepReport
from holdfast.settings.times import duration
from holdfast.views.steps.chart import Chart, Heat, chart, hours, ratios, steps_words

ASSETS = files("holdfast") / "page_assets"
STYLES = ("uplot/uPlot.min.css", "colours.css", "steps.css")
SCRIPTS = ("uplot/uPlot.iife.min.js", "steps.js")
ROWS_MAX = 200  # of a table
# Columns whose text may be long, and is broken.
BROKEN = {"explanation": "wide", "explained by": "wide", "what": "some", "node": "some"}
RATIO_SCALE = 1000  # ratios travel as whole thousandths in 16 bits; 0: no value
RATIO_MAX = 65_535
# All that could end a script element, or be read as markup by a parser that ignores the context.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})  # fmt: skip


def html_page(report: StepReport, curves: Sequence[CurvePoint], heat: HeatMap | None, title: str) -> str:
    """Returns the HTML page.

    Curves and heat map may be empty; the page then says so and shows only numbers.
    """
    drawn, map_ = chart(report, curves), ratios(heat)
    styles = [_asset(name) for name in STYLES]
    scripts = [_asset(name) for name in SCRIPTS]
    body = "\n".join(
        part
        for part in (
            _head(report, title),
            _summary(report),
            _curve_section(drawn),
            _slowdown_section(report.slowdowns),
            _straggler_section(report),
            _heat_section(map_),
            _phase_section(report),
            _spike_section(report),
            _loss_section(report),
            _notes_section(report),
        )
        if part
    )
    return (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(styles, scripts)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="holdfast {escape(__version__)}">\n'
        f"<title>{escape(title)}</title>\n"
        + "".join(f"<style>{style}</style>\n" for style in styles)
        + f"</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"<footer>holdfast {escape(__version__)}. This file loads nothing and sends nothing.</footer>\n"
        f'<script type="application/json" id="data">{_data(drawn, map_, report)}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


# What scripts get ----------------------------------------------------------------------------------------


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _policy(styles: Iterable[str], scripts: Iterable[str]) -> str:
    """Returns a content security policy that allows exactly these styles and scripts, and no requests."""
    return (
        f"default-src 'none'; style-src {' '.join(map(_hash, styles))}; "
        f"script-src {' '.join(map(_hash, scripts))}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(drawn: Chart, map_: Heat | None, report: StepReport) -> str:
    slow = sorted({rank for straggler in report.stragglers for rank in straggler.ranks})
    data = {"chart": drawn, "heat": None if map_ is None else _packed(map_) | {"marked": slow}}
    return msgspec.json.encode(data).decode().translate(_IN_SCRIPT)


def _packed(map_: Heat) -> dict[str, object]:
    """Returns the heat map for JSON: ratios row by row, 16 bits each, little-endian, in base64."""
    flat = [
        0 if value is None else max(1, min(RATIO_MAX, round(value * RATIO_SCALE)))
        for row in map_.ratios
        for value in row
    ]
    return {
        "ranks": map_.ranks,
        "steps": map_.steps,
        "middle_s": map_.middle_s,
        "reach": map_.reach,
        "scale": RATIO_SCALE,
        "ratios": base64.b64encode(struct.pack(f"<{len(flat)}H", *flat)).decode(),
    }


# What people read ----------------------------------------------------------------------------------------


def _head(report: StepReport, title: str) -> str:
    framework = escape(report.framework) if report.framework else "framework not recognised"
    return f"<header><h1>{escape(title)}</h1><p>{framework}</p></header>"


def _summary(report: StepReport) -> str:
    first, last = report.first, report.last
    found = [
        ("median time per step", duration(report.median_step_time_s), ""),
        ("first step", _number(first.step), _in_passing(first.step_time_s)),
        ("last step", _number(last.step), _in_passing(last.step_time_s)),
        ("step records", f"{report.iteration_lines:,}", ""),
        ("runs", f"{report.runs:,}", _restarts(report.runs)),
        ("slowdowns", f"{len(report.slowdowns):,}", _cost(report.slowdowns)),
    ]
    if report.ranks:
        found.append(("ranks with a log", f"{len(report.ranks):,}", ""))
    if report.stragglers:
        named = [rank for straggler in report.stragglers for rank in straggler.ranks]
        found.append(("slow ranks", f"{len(set(named)):,}", _few(sorted(set(named)))))
    if report.loss.last is not None or report.loss.nan_at is not None:
        bad = "" if report.loss.nan_at is None else f"NaN or infinite from step {report.loss.nan_at:,}"
        found.append(("last loss", "none" if report.loss.last is None else f"{report.loss.last:.5g}", bad))
    cards = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
        + (f'<dd class="small">{escape(more)}</dd>' if more else "")
        + "</div>"
        for name, value, more in found
    )
    return f'<dl class="cards">{cards}</dl>'


def _number(step: int | None) -> str:
    return "unknown" if step is None else f"{step:,}"


def _in_passing(time_s: float | None) -> str:
    return "" if time_s is None else f"took {duration(time_s)}"


def _restarts(runs: int) -> str:
    return "" if runs < 2 else "1 restart" if runs == 2 else f"{runs - 1:,} restarts"


def _cost(slowdowns: Sequence[Slowdown]) -> str:
    costs = [slow.cost_gpu_hours for slow in slowdowns if slow.cost_gpu_hours is not None]
    return f"cost so far: {hours(sum(costs))}" if costs else ""


def _few(ranks: Sequence[int], count: int = 8) -> str:
    more = f" and {len(ranks) - count:,} more" if len(ranks) > count else ""
    return ", ".join(map(str, ranks[:count])) + more


def _curve_section(drawn: Chart) -> str:
    if drawn.is_empty:
        return _section("Time per step", '<p class="empty">There are no step times to draw.</p>')
    return _section(
        "Time per step",
        '<form class="controls" id="scales"></form>'
        '<div class="plot" id="curve" tabindex="0" role="group" aria-describedby="read-curve" '
        'aria-label="Time per step over the steps"></div>'
        '<p class="legend" id="legend"></p>'
        '<p class="readout" id="read-curve" aria-live="polite"></p>',
    )


def _heat_section(map_: Heat | None) -> str:
    if map_ is None:
        return ""
    rows = [[f"{one.rank:,}", f"{one.median:.3f}×", f"{one.worst:.3f}×"] for one in map_.slowest]
    return _section(
        "Step times of ranks compared",
        "<p>Each cell is a rank's time for a stretch of steps, against the median of all ranks there.</p>"
        '<div class="plot heat" id="heat" tabindex="0" role="group" aria-describedby="read-heat" '
        'aria-label="Time per step by rank and step"></div>'
        '<p class="legend" id="heat-legend"></p>'
        '<p class="readout" id="read-heat" aria-live="polite"></p>'
        "<h3>Slowest ranks, to the median of all</h3>"
        + _table(("rank", "median", "slowest tenth"), rows, numeric=(0, 1, 2)),
    )


def _slowdown_section(slowdowns: Sequence[Slowdown]) -> str:
    if not slowdowns:
        return _section("Slowdowns", '<p class="empty">None found.</p>')
    rows = [
        [
            steps_words(slow.first_step, slow.last_step) + (f", run {slow.run + 1}" if slow.run else ""),
            f"{slow.ratio:.2f}×",
            f"{duration(slow.before_s)} → {duration(slow.after_s)}",
            slow.kind,
            slow.what,
            hours(slow.cost_gpu_hours),
            slow.explanation,
        ]
        for slow in slowdowns
    ]
    head = ("steps", "slower", "time per step", "kind", "what", "cost", "explanation")
    return _section("Slowdowns", _table(head, rows, numeric=(1,), ids="slowdown"))


def _straggler_section(report: StepReport) -> str:
    if not report.stragglers:
        return ""
    rows = [
        [
            _few(one.ranks),
            one.node,
            "unknown" if one.ratio is None else f"{one.ratio:.2f}×",
            steps_words(one.first_step, None) if one.first_step is not None else "",
            one.source,
            f"{one.confidence:.0%}",
            one.explanation,
        ]
        for one in report.stragglers
    ]
    head = ("ranks", "node", "slower", "steps", "seen in", "sure", "explanation")
    return _section("Slow ranks", _table(head, rows, numeric=(2, 5)))


def _phase_section(report: StepReport) -> str:
    if not report.phases:
        return ""
    rows = [
        [
            phase.kind,
            steps_words(phase.first_step, phase.last_step) if phase.first_step is not None else "",
            f"{phase.count:,}",
            duration(phase.median_s),
        ]
        for phase in report.phases
    ]
    return _section(
        "Step time by kind",
        _table(("phase", "between", "steps", "median"), rows, numeric=(2, 3)),
    )


def _spike_section(report: StepReport) -> str:
    if not report.spikes:
        return ""
    rows = [
        [
            _number(spike.first_step),
            f"{spike.count:,}",
            duration(spike.time_s),
            f"{spike.ratio:.1f}×",
            "" if spike.period is None else f"every {spike.period:,} steps",
            spike.kind or "not explained",
        ]
        for spike in report.spikes
    ]
    head = ("first step", "steps", "time", "relative to the usual step", "comes", "explained by")
    return _section("Single long steps", _table(head, rows, numeric=(0, 1, 2, 3)))


def _loss_section(report: StepReport) -> str:
    loss = report.loss
    said = [
        f"At step {_number(spike.step)} the loss went from {spike.before:.5g} to {spike.loss:.5g}."
        for spike in loss.spikes
    ]
    if loss.nan_at is not None:
        said.append(f"The loss is NaN or infinite from step {loss.nan_at:,} on.")
    if loss.diverged_at is not None:
        said.append(f"The loss diverges from step {loss.diverged_at:,} on.")
    return _section("Loss", _listed(said)) if said else ""


def _notes_section(report: StepReport) -> str:
    return _section("Caveats", _listed(report.notes)) if report.notes else ""


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>"


def _listed(texts: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[int] = (), ids: str = ""
) -> str:
    """Returns an HTML table that scrolls in its own box on a narrow page.

    `ids`: rows get the ids ids-0, ids-1, ...
    """
    kinds = [
        ' class="number"' if column in numeric else f' class="{BROKEN[name]}"' if name in BROKEN else ""
        for column, name in enumerate(head)
    ]
    names = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(head, kinds, strict=True)
    )
    body = "".join(
        (f'<tr id="{ids}-{number}">' if ids else "<tr>")
        + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for number, row in enumerate(rows[:ROWS_MAX])
    )
    more = (
        f'<p class="hint">{len(rows) - ROWS_MAX:,} more are left out here.</p>'
        if len(rows) > ROWS_MAX
        else ""
    )
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(" and ".join(head[:2]))}">'
        f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>{more}"
    )

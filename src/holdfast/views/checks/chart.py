"""Lays out benchmark results as a chart: a panel for each measured quantity, a curve for each sweep over
sizes. Pure.

The HTML page and the PNG image both draw this chart.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.checks.bench import LOW_FAIL, LOW_WARN
from holdfast.model.checks import FAIL, PASS, WARN, Baseline, Fact, NodeChecks, Outcome

ROWS_MAX = 40  # more are drawn as points in the order of their values
PEERS_MIN = 3
SIZES_MIN = 3
LINES_MAX = 16
LOWEST_NAMED = 3
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?([KMGT]i)?B\b")
_BYTES = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


class BenchFileUnreadable(ValueError):
    """Raised when a file is not an output of `holdfast check --json`. The message names the file."""


class Row(Struct, frozen=True, kw_only=True):
    """The measured value of one device, as a row of a panel. `first`: its first value in the baseline; None if
    unknown.

    `off`: how much worse it is than the median of its model, as a share; None if there are too few devices.
    `is_sure`: False if other processes used the device during the measurement.
    """

    label: str
    value: float
    spread: float = 0.0
    first: float | None = None
    off: float | None = None
    is_sure: bool = True

    @property
    def status(self) -> str:
        if self.off is None or not self.is_sure:
            return PASS
        limit = 3 * self.spread
        return FAIL if self.off > max(LOW_FAIL, limit) else WARN if self.off > max(LOW_WARN, limit) else PASS


class Panel(Struct, frozen=True, kw_only=True):
    """A chart panel with one measured quantity of all devices of one model, a row for each device.

    `middle`: the median of the devices, if there are three or more.
    """

    check: str
    name: str
    unit: str
    model: str
    rows: tuple[Row, ...]
    middle: float | None = None

    @property
    def title(self) -> str:
        return f"{self.check}: {self.name}"

    @property
    def top(self) -> float:
        """Returns the upper end of the panel's scale."""
        return max((max(row.value, row.first or 0.0) for row in self.rows), default=0.0)

    @property
    def lowest(self) -> str:
        """Returns a text that names the devices with the worst values: `gpu-02 gpu 165…: 487 TFLOP/s; ...`"""
        far = sorted((row for row in self.rows if row.status != PASS), key=lambda row: -(row.off or 0.0))
        words = [f"{row.label}: {number(row.value)} {self.unit}" for row in far[:LOWEST_NAMED]]
        return "; ".join(words) + (f"; {len(far) - LOWEST_NAMED} more" if len(far) > LOWEST_NAMED else "")

    @property
    def is_crowded(self) -> bool:
        return len(self.rows) > ROWS_MAX


class Line(Struct, frozen=True, kw_only=True):
    """One line of a curve chart: a sweep over sizes on one node or device. Points (bytes, value) by ascending
    size.
    """

    label: str
    points: tuple[tuple[float, float], ...]


class Curve(Struct, frozen=True, kw_only=True):
    """A measured quantity over sizes of messages or files.

    `model`: hardware and setting, such as "H100 nccl 16 ranks".
    """

    check: str
    name: str
    unit: str
    model: str
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        return f"{self.check}: {self.name}"

    @property
    def shown(self) -> tuple[Line, ...]:
        """Returns the lines to draw; if there are too many, the lowest, because slow nodes matter most."""
        if len(self.lines) <= LINES_MAX:
            return self.lines
        return tuple(sorted(self.lines, key=lambda line: max(value for _, value in line.points))[:LINES_MAX])


class Chart(Struct, frozen=True, kw_only=True):
    """A chart of benchmark results: panels and curves."""

    panels: tuple[Panel, ...] = ()
    curves: tuple[Curve, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.panels or self.curves)


class _Seen(Struct, frozen=True):
    node: str
    check: str
    fact: Fact


def chart(nodes: Sequence[NodeChecks], known: Baseline | None = None) -> Chart:
    """Returns the chart of all benchmark values.

    `known`: the baseline of this node; None if the results are of several.
    """
    seen = [
        _Seen(node.node, outcome.check, fact)
        for node in nodes
        for outcome in node.outcomes
        for fact in outcome.facts
        if fact.unit and isinstance(fact.value, int | float) and not isinstance(fact.value, bool)
    ]
    swept, single = _swept(seen)
    groups: dict[tuple[str, str, str, str], list[_Seen]] = defaultdict(list)
    for one in single:
        groups[one.check, one.fact.name, one.fact.unit, one.fact.model].append(one)
    has_many = len(nodes) > 1
    return Chart(
        panels=tuple(_panel(key, group, has_many, known or Baseline()) for key, group in groups.items()),
        curves=tuple(_curve(key, group, has_many) for key, group in swept.items()),
    )


def _swept(seen: Iterable[_Seen]) -> tuple[dict[tuple[str, str, str, str], list[_Seen]], list[_Seen]]:
    """Splits benchmark values into sweeps, which have at least three sizes under one name, and single
    values.
    """
    groups: dict[tuple[str, str, str, str], list[_Seen]] = defaultdict(list)
    single = []
    for one in seen:
        found = _SIZE.search(one.fact.name)
        if found:
            groups[one.check, _without_size(one.fact.name), one.fact.unit, one.fact.model].append(one)
        else:
            single.append(one)
    swept = {}
    for key, group in groups.items():
        if len({size_of(one.fact.name) for one in group}) >= SIZES_MIN:
            swept[key] = group
        else:
            single += group
    return swept, single


def size_of(name: str) -> float:
    """Returns the size that a measurement's name contains, in bytes: 8388608.0 for `all-reduce 8 MiB`.

    raises: ValueError if the name contains no size
    """
    found = _SIZE.search(name)
    if found is None:
        raise ValueError(f"{name!r} contains no size")
    return float(found[1]) * _BYTES[found[2]]


def _without_size(name: str) -> str:
    """Removes the size from a name: `all-reduce 8 MiB, bus bandwidth` becomes `all-reduce, bus bandwidth`."""
    return " ".join(_SIZE.sub("", name).split()).replace(" ,", ",").strip(" ,:")


def _panel(key: tuple[str, str, str, str], group: Sequence[_Seen], has_many: bool, known: Baseline) -> Panel:
    check, name, unit, model = key
    sure = [float(one.fact.value) for one in group if one.fact.peers]
    middle = median(sure) if len(sure) >= PEERS_MIN else None
    return Panel(
        check=check,
        name=name,
        unit=unit,
        model=model,
        middle=middle,
        rows=tuple(_row(one, middle, has_many, known) for one in group),
    )


def _row(one: _Seen, middle: float | None, has_many: bool, known: Baseline) -> Row:
    value = float(one.fact.value)
    first = None if has_many else known.of(one.fact.device, one.fact.name)
    off = None
    if middle:
        off = (middle - value if one.fact.low_is_bad else value - middle) / middle
    return Row(
        label=_label(one, has_many),
        value=value,
        spread=one.fact.spread,
        first=float(first) if isinstance(first, int | float) and first > 0 else None,
        off=off,
        is_sure=one.fact.peers,
    )


def _label(one: _Seen, has_many: bool) -> str:
    kind, _, name = one.fact.device.partition(":")
    device = "" if kind in ("node", "cpu") else f"{kind} {name}" if name else kind
    return " ".join(filter(None, (one.node if has_many or not device else "", device)))


def _curve(key: tuple[str, str, str, str], group: Sequence[_Seen], has_many: bool) -> Curve:
    check, name, unit, model = key
    lines: dict[str, dict[float, float]] = defaultdict(dict)
    for one in group:
        lines[_label(one, has_many)][size_of(one.fact.name)] = float(one.fact.value)
    return Curve(
        check=check,
        name=name,
        unit=unit,
        model=model,
        lines=tuple(
            Line(label=label, points=tuple(sorted(points.items()))) for label, points in lines.items()
        ),
    )


# From a file ---------------------------------------------------------------------------------------------


def nodes_of(text: bytes, name: str) -> tuple[NodeChecks, ...]:
    """Parses the output of `holdfast check --json` into nodes with their values.

    Raises BenchFileUnreadable.
    """
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
        facts = [_fact(one) for one in document["facts"]]
        names = [str(one["node"]) for one in document["nodes"]]
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise BenchFileUnreadable(f"{name} is not an output of `holdfast check --json`: {error}") from error
    return tuple(NodeChecks(node=node, outcomes=_outcomes(node, facts)) for node in names)


def _fact(fields: Mapping[str, Any]) -> tuple[str, str, Fact]:
    return (
        str(fields["node"]),
        str(fields["check"]),
        Fact(
            name=str(fields["name"]),
            value=fields["value"] if isinstance(fields["value"], str | int | float | bool) else "",
            device=str(fields["device"]),
            unit=str(fields.get("unit", "")),
            model=str(fields.get("model", "")),
            peers=bool(fields.get("peers", True)),
            low_is_bad=bool(fields.get("low_is_bad", True)),
            spread=float(fields.get("spread", 0.0)),
        ),
    )


def _outcomes(node: str, facts: Sequence[tuple[str, str, Fact]]) -> tuple[Outcome, ...]:
    by_check: dict[str, list[Fact]] = defaultdict(list)
    for where, check, fact in facts:
        if where == node:
            by_check[check].append(fact)
    return tuple(
        Outcome(check=check, area=check.partition("-")[0], status=PASS, facts=tuple(found))
        for check, found in by_check.items()
    )


# Words and numbers ---------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Formats a value with three significant digits: `712`, `53.4`, `0.0421`, `213,700`."""
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def of_bytes(count: float) -> str:
    """Formats a number of bytes with its unit, such as `8 MiB`."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:.4g} B"


def round_ticks(top: float, most: int = 5) -> list[float]:
    """Returns at most `most` round tick values from 0 to `top`, in steps of 1, 2 or 5 times a power of
    ten.
    """
    if top <= 0:
        return [0.0]
    step = 10.0 ** (len(f"{top:.0f}") - 1) if top >= 1 else 10.0 ** -len(f"{1 / top:.0f}")
    sizes = sorted(step * factor for factor in (0.1, 0.2, 0.5, 1, 2, 5, 10))
    every = next((size for size in sizes if top / size <= most), sizes[-1])
    return [every * place for place in range(int(top / every + 1e-9) + 1)]

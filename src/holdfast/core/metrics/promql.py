"""Expands named quantities in PromQL: `$gpu_util` becomes all series that can contain it, in one unit.

Pure.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.model.monitoring.alert_rules import Series, SeriesName

QUANTITY = re.compile(
    r"\$(?P<word>[a-z][a-z0-9_]*)(?:\((?P<series>[a-z0-9_]+), (?P<range>\d+[smhd])\))?"
    r"(?P<labels>\{(?:[^{}]|\$\{\w+\})*\})?"
)
OFFSET = "offset"
NAMES = re.compile(r"\b(?:DCGM_[A-Z]+_\w+|(?:node|holdfast|container|hami|vGPU)_\w+|holdfast:\w+|up)\b")
_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_SELECTORS = re.compile(r"\{(?:[^{}]|\$\{\w+\})*\}")


class UnknownSeries(KeyError):
    """Raised for a quantity that series.toml does not define."""


class Ranged(NamedTuple):
    """A range function applied to a quantity: function `increase`, quantity `port_downed`, range `3h`."""

    function: str
    series: str
    range: str


def expanded(text: str, series: Mapping[str, Series]) -> str:
    """Returns an expression with its quantities expanded to PromQL. raises: UnknownSeries"""
    return QUANTITY.sub(lambda found: _one(found, series), text)


def quantity(name: str, series: Mapping[str, Series]) -> str:
    """Returns the PromQL expression of a quantity defined in series.toml. raises: UnknownSeries"""
    return expanded(f"${name}", series)


def ranged(text: str) -> list[Ranged]:
    """Returns all range functions of quantities in an expression."""
    return [
        Ranged(found["word"], found["series"], found["range"])
        for found in QUANTITY.finditer(text)
        if found["series"]
    ]


def metric_names(promql: str) -> set[str]:
    """Returns the names of series in a PromQL expression of this package, without labels and strings."""
    plain = _SELECTORS.sub("", _TEXTS.sub('""', promql))
    return set(NAMES.findall(_GROUPED.sub("", plain)))


def _one(found: re.Match[str], series: Mapping[str, Series]) -> str:
    name = found["series"] or found["word"]
    if name not in series:
        raise UnknownSeries(name)
    parts = [_part(found, one) for one in series[name].names]
    return parts[0] if len(parts) == 1 and " " not in parts[0] else f"({' or '.join(parts)})"


def _part(found: re.Match[str], one: SeriesName) -> str:
    text = one.name + (found["labels"] or "")
    if found["series"]:
        function, span = found["word"], found["range"]
        text = f"{text} offset {span}" if function == OFFSET else f"{function}({text}[{span}])"
    return text if one.scale == 1.0 else f"{text} * {one.scale:g}"

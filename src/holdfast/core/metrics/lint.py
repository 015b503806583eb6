"""Finds alert rules that can never fire on a given Prometheus, with the reasons, from the series that it has.

Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from holdfast.core.metrics.promql import metric_names, ranged
from holdfast.core.metrics.rule_files import KNOWN, every_rule
from holdfast.core.metrics.table import BY_NAME, series_names
from holdfast.model.monitoring.alert_rules import AlertRule, RuleBook, Series

JOINS = ("Hostname", "UUID", "job_name", "node")
SAMPLES_MIN = 2  # minimum that increase, rate and changes need within their range
OWN_EXPORTER = "Holdfast"
# Functions that return nothing for a series with fewer samples.
NEED_TWO = ("increase", "rate", "changes")
# Holdfast metrics that exist only during a condition. Their absence proves nothing.
ONLY_SOMETIMES = frozenset(
    (
        "holdfast_job_outcome",
        "holdfast_incidents_total",
        "holdfast_ranks_at_fault",
        "holdfast_rank_at_fault",
        "holdfast_job_restarts_max",
        "holdfast_job_last_output_timestamp_seconds",
    )
)
_HALF = {
    "gpu_xid_count": "only the last-Xid gauge exists, which never resets: the rule does not detect a repeated Xid",
    "gpu_xid": "",
    "nvlink_replays": "only recoveries exist",
    "nvlink_recoveries": "only replays exist",
}


class Has(Struct, frozen=True, kw_only=True):
    """The series that a Prometheus server has, as far as alert rules need them.

    `names`: seen within the last day. `with_numbers`: names with a current number, neither NaN nor DCGM's blank
    value. `labelled`: by label, the names with at least one series that has it. `samples`: by name and range ("10m"),
    the most samples of one series. `meets`: whether node names of agents equal Hostname labels of GPUs; None if one
    of them is missing. `loaded`: loaded alert rules, with the error of their last evaluation.
    """

    names: frozenset[str]
    with_numbers: frozenset[str]
    labelled: dict[str, frozenset[str]]
    samples: dict[tuple[str, str], int]
    meets: bool | None
    loaded: dict[str, str]


class Judged(Struct, frozen=True, kw_only=True):
    """Whether one alert rule can fire.

    `why`: reasons that it cannot; empty if it can. `notes`: limits of the rule.
    """

    rule: str
    why: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def can_fire(self) -> bool:
        return not self.why


def judged(book: RuleBook, has: Has) -> list[Judged]:
    """Returns, for every alert rule, whether this Prometheus has the series with which it can fire."""
    return [_one(rule, book.series, has) for rule in every_rule(book)]


def asked_names(book: RuleBook) -> list[str]:
    """Returns the names of all series that the alert rules use."""
    own = {name for rule in every_rule(book) for name in metric_names(rule.expr)}
    return sorted({one.name for series in book.series.values() for one in series.names} | own)


def asked_ranges(book: RuleBook) -> list[tuple[str, str]]:
    """Returns the (series name, range) pairs that must contain at least SAMPLES_MIN samples."""
    found = set()
    for rule in every_rule(book):
        for one in ranged(rule.expr):
            if one.function in NEED_TWO:
                found |= {(name.name, one.range) for name in book.series[one.series].names}
        found |= _plain_ranges(rule.expr)
    return sorted(found)


def _plain_ranges(expr: str) -> set[tuple[str, str]]:
    found = re.findall(r"(?:increase|rate|changes)\((\w+)(?:\{[^}]*\})?\[(\d+[smhd])\]\)", expr)
    return {(name, span) for name, span in found}


# One rule ------------------------------------------------------------------------------------------------


def _one(rule: AlertRule, series: Mapping[str, Series], has: Has) -> Judged:
    why = tuple(dict.fromkeys(text for need in rule.needs for text in _of_need(need, rule, series, has)))
    if not why and has.meets is False and _joins_nodes(rule):
        why = ("no agent node name equals a GPU Hostname: their labels cannot be joined",)
    notes = [text for need in rule.needs if (text := _half(need, series, has))]
    if rule.name not in has.loaded:
        notes.append("this Prometheus has not loaded it")
    elif error := has.loaded[rule.name]:
        why = (*why, f"its evaluation fails on this Prometheus: {error}")
    return Judged(rule=rule.name, why=why, notes=tuple(notes))


def _joins_nodes(rule: AlertRule) -> bool:
    return "holdfast_agent_info" in rule.expr and "$gpu_" in rule.expr


def _of_need(need: str, rule: AlertRule, series: Mapping[str, Series], has: Has) -> Iterator[str]:
    """Yields why a rule lacks a needed series. For alternatives, yields a reason only if all are missing."""
    options = need.split("|")
    reasons = [_reason(one, rule, series, has) for one in options]
    if all(reasons):
        yield from reasons[:1]


def _reason(one: str, rule: AlertRule, series: Mapping[str, Series], has: Has) -> str:
    names = [name.name for name in series[one].names] if one in series else [one]
    there = [name for name in names if name in has.names]
    if not there and one in ONLY_SOMETIMES and has.names & series_names():
        return ""
    if not there:
        return _missing(one, names, series, has)
    if not any(name in has.with_numbers for name in there):
        return f"{there[0]} exists, but has no number: it is NaN, blank or stale"
    for label in JOINS:
        if _asks_for(rule, label) and _has_label(one, label, series):
            if not any(name in has.labelled.get(label, frozenset()) for name in there):
                return f"{there[0]} has no label {label}, which the rule joins on"
    return _too_rare(one, there, rule, has)


def _missing(one: str, names: Sequence[str], series: Mapping[str, Series], has: Has) -> str:
    if one == KNOWN:
        return f"no series {KNOWN}: holdfast-known.rules.yml is not loaded on this Prometheus"
    if one not in series:
        if has.names & series_names():
            metric = BY_NAME.get(one)
            who = f": the {metric.exported_by[0]} of a job exports it" if metric is not None else ""
            return f"no series {one} in the last day{who}"
        return f"no series of {OWN_EXPORTER}: run jobs with --metrics-address and scrape that address"
    exporter = series[one].exporter
    of_same = {name.name for other in series.values() if other.exporter == exporter for name in other.names}
    if not of_same & has.names:
        return f"no series of {exporter}: it is not running or not scraped"
    off = series[one].off
    return f"no series {' or '.join(names)}" + (f": {off}" if off else f", although {exporter} is scraped")


def _asks_for(rule: AlertRule, label: str) -> bool:
    return re.search(rf"\b(?:on|by)\s*\([^)]*\b{label}\b", rule.expr) is not None


def _has_label(one: str, label: str, series: Mapping[str, Series]) -> bool:
    if one in series:
        return f'{label}="' in series[one].labels
    metric = BY_NAME.get(one)
    return metric is not None and label in metric.labels


def _too_rare(one: str, there: Sequence[str], rule: AlertRule, has: Has) -> str:
    spans = [item.range for item in ranged(rule.expr) if item.series == one and item.function in NEED_TWO]
    spans += [span for name, span in _plain_ranges(rule.expr) if name in there]
    for span in spans:
        most = max(has.samples.get((name, span), 0) for name in there)
        if 0 < most < SAMPLES_MIN:
            return f"{there[0]} is scraped too rarely: {most} sample in {span}, and {SAMPLES_MIN} are needed"
    return ""


def _half(need: str, series: Mapping[str, Series], has: Has) -> str:
    """Returns the effect on the rule if one of two alternative series is missing; empty if both exist."""
    options = need.split("|")
    if len(options) == 1:
        return ""
    absent = [one for one in options if not any(name.name in has.names for name in series[one].names)]
    return _HALF.get(absent[0], "") if absent and len(absent) < len(options) else ""

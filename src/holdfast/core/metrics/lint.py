"""Says which alert rules can never fire on a Prometheus, and why. Pure: what that Prometheus has is given."""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from holdfast.core.metrics.promql import metric_names, ranged
from holdfast.core.metrics.rule_files import KNOWN, every_rule
from holdfast.core.metrics.table import BY_NAME, series_names
from holdfast.model.monitoring.alert_rules import AlertRule, RuleBook, Series

JOINS = ("Hostname", "UUID", "job_name", "node")
SAMPLES_MIN = 2  # that increase, rate and changes need within their range
OWN_EXPORTER = "Holdfast"
# Functions that say nothing about a series of fewer samples.
NEED_TWO = ("increase", "rate", "changes")
# Holdfast's own metrics that are there only while something is so: their absence tells nothing.
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
    "gpu_xid_count": "only the gauge of the last Xid is there, which never clears: a repeat of the same Xid is not seen",
    "gpu_xid": "",
    "nvlink_replays": "only recoveries are there",
    "nvlink_recoveries": "only replays are there",
}


class Has(Struct, frozen=True, kw_only=True):
    """What a Prometheus has of the series that rules ask for.

    `names`: seen within the last day. `with_numbers`: those that have a number now, neither NaN nor DCGM's blank value.
    `labelled`: by label, the names of which at least one series has it. `samples`: of a name, the most that one of its
    series has within a range ("10m"). `meets`: whether node names of agents and Hostname of GPUs have any in common;
    None: one of them is missing. `loaded`: alert rules that are loaded, with the error of their last evaluation.
    """

    names: frozenset[str]
    with_numbers: frozenset[str]
    labelled: dict[str, frozenset[str]]
    samples: dict[tuple[str, str], int]
    meets: bool | None
    loaded: dict[str, str]


class Judged(Struct, frozen=True, kw_only=True):
    """One rule. `why`: what keeps it from firing, empty if it can fire. `notes`: what it cannot see, or that it is not
    loaded.
    """

    rule: str
    why: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def can_fire(self) -> bool:
        return not self.why


def judged(book: RuleBook, has: Has) -> list[Judged]:
    """Every rule of the book: it can fire, or what keeps it from that."""
    return [_one(rule, book.series, has) for rule in every_rule(book)]


def asked_names(book: RuleBook) -> list[str]:
    """All series names that rules ask for."""
    own = {name for rule in every_rule(book) for name in metric_names(rule.expr)}
    return sorted({one.name for series in book.series.values() for one in series.names} | own)


def asked_ranges(book: RuleBook) -> list[tuple[str, str]]:
    """Names and ranges within which at least SAMPLES_MIN samples must lie."""
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
        why = ("no node name of an agent is the Hostname of a GPU: their labels cannot be joined",)
    notes = [text for need in rule.needs if (text := _half(need, series, has))]
    if rule.name not in has.loaded:
        notes.append("this Prometheus has not loaded it")
    elif error := has.loaded[rule.name]:
        why = (*why, f"Prometheus cannot evaluate it: {error}")
    return Judged(rule=rule.name, why=why, notes=tuple(notes))


def _joins_nodes(rule: AlertRule) -> bool:
    return "holdfast_agent_info" in rule.expr and "$gpu_" in rule.expr


def _of_need(need: str, rule: AlertRule, series: Mapping[str, Series], has: Has) -> Iterator[str]:
    """Why this need is not met; where one of several will do, only if none of them is there."""
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
        return f"{there[0]} is there, but holds no number: NaN, blank, or gone since"
    for label in JOINS:
        if _asks_for(rule, label) and _has_label(one, label, series):
            if not any(name in has.labelled.get(label, frozenset()) for name in there):
                return f"{there[0]} has no label {label}, by which the rule joins series"
    return _too_rare(one, there, rule, has)


def _missing(one: str, names: Sequence[str], series: Mapping[str, Series], has: Has) -> str:
    if one == KNOWN:
        return f"no series {KNOWN}: holdfast-known.rules.yml is not loaded there"
    if one not in series:
        if has.names & series_names():
            metric = BY_NAME.get(one)
            who = f": the {metric.exported_by[0]} of a job exports it" if metric is not None else ""
            return f"no series {one} in the last day{who}"
        return f"no series of {OWN_EXPORTER}: run jobs with --metrics-address, and scrape that"
    exporter = series[one].exporter
    of_same = {name.name for other in series.values() if other.exporter == exporter for name in other.names}
    if not of_same & has.names:
        return f"no series of {exporter}: it does not run, or is not scraped"
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
    """Where one of several is there and another is missing: what that costs."""
    options = need.split("|")
    if len(options) == 1:
        return ""
    absent = [one for one in options if not any(name.name in has.names for name in series[one].names)]
    return _HALF.get(absent[0], "") if absent and len(absent) < len(options) else ""

"""Generates Prometheus rule files, promtool tests and the Prometheus-operator form from alert rules as data.

Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.core.metrics.promql import expanded, quantity
from holdfast.model.monitoring.alert_rules import AlertRule, RuleBook, RuleCase, RuleGroup, Series

KNOWN = "holdfast:alert_rule_known"
KNOWN_GROUP = "holdfast-rules-known"
EVERY_S = 30
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_OF_CASE = re.compile(r"(?P<name>\$?[A-Za-z_:][\w:]*)(?P<labels>\{.*\})?")

Document = dict[str, Any]


def every_rule(book: RuleBook) -> list[AlertRule]:
    """Returns the alert rules of all groups."""
    return [rule for group in book.groups for rule in group.rules]


def rule_file(group: RuleGroup, book: RuleBook) -> Document:
    """Returns one group of alert rules as the document of a Prometheus rule file."""
    return {"groups": [_group(group, book)]}


def known_file(book: RuleBook) -> Document:
    """Returns recording rules that are 1 if all series of an alert rule exist, else 0, which means unknown
    and not healthy.
    """
    return {"groups": [_known_group(book)]}


def operator_form(book: RuleBook) -> Document:
    """Returns all groups as a PrometheusRule object.

    source: prometheus-operator, API monitoring.coreos.com/v1
    """
    groups = [*(_group(group, book) for group in book.groups), _known_group(book)]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "holdfast", "labels": {"app.kubernetes.io/name": "holdfast"}},
        "spec": {"groups": groups},
    }


def promtool_tests(group: RuleGroup, book: RuleBook, rule_files: Sequence[str]) -> Document:
    """Returns tests for `promtool test rules`: each rule fires and does not fire, with new and old series
    names.
    """
    tests = [
        test
        for rule in group.rules
        for cases, does_fire in ((rule.fires, True), (rule.quiet, False))
        for case in cases
        for test in _tests(rule, case, book.series, does_fire=does_fire)
    ]
    return {"rule_files": list(rule_files), "evaluation_interval": f"{EVERY_S}s", "tests": tests}


def annotations(rule: AlertRule) -> dict[str, str]:
    """Returns the annotations of an alert rule: summary, description and source."""
    return {"summary": rule.says, "description": rule.advice, "source": rule.source}


# Rules ---------------------------------------------------------------------------------------------------


def _group(group: RuleGroup, book: RuleBook) -> Document:
    return {
        "name": f"holdfast-{group.name}" if group.name != "holdfast" else "holdfast",
        "interval": f"{EVERY_S}s",
        "rules": [_rule(rule, book.series) for rule in group.rules],
    }


def _rule(rule: AlertRule, series: Mapping[str, Series]) -> Document:
    found: Document = {"alert": rule.name, "expr": expanded(rule.expr, series)}
    if rule.for_ != "0s":
        found["for"] = rule.for_
    return {**found, "labels": {"severity": rule.severity}, "annotations": annotations(rule)}


def _known_group(book: RuleBook) -> Document:
    rules = [
        {"record": KNOWN, "expr": is_known(rule, book.series), "labels": {"rule": rule.name}}
        for rule in every_rule(book)
        if KNOWN not in rule.needs
    ]
    return {"name": KNOWN_GROUP, "interval": f"{EVERY_S}s", "rules": rules}


def is_known(rule: AlertRule, series: Mapping[str, Series]) -> str:
    """Returns a PromQL expression that is 1 if all series that the rule needs exist, else 0."""
    parts = [f"(count({' or '.join(_of_need(need, series))}) > bool 0)" for need in rule.needs]
    return f"{' * '.join(parts)} or vector(0)"


def _of_need(need: str, series: Mapping[str, Series]) -> Iterator[str]:
    for one in need.split("|"):
        yield quantity(one, series) if one in series else one


# Tests ---------------------------------------------------------------------------------------------------


def _tests(
    rule: AlertRule, case: RuleCase, series: Mapping[str, Series], *, does_fire: bool
) -> Iterator[Document]:
    count = max(len(one.names) for one in _quantities(case, series)) if _quantities(case, series) else 1
    for number in range(count):
        written = [
            {"series": name, "values": values}
            for key, text in case.series.items()
            for name, values in [_input(key, text, series, number)]
        ]
        which = "fires" if does_fire else "does not fire"
        yield {
            "name": f"{rule.name} {which}" + (f", with names {number + 1}" if count > 1 else ""),
            "interval": f"{EVERY_S}s",
            "input_series": written,
            "promql_expr_test": [_expected(rule, case, does_fire=does_fire)],
        }


def _expected(rule: AlertRule, case: RuleCase, *, does_fire: bool) -> Document:
    chosen = f",{case.labels}" if case.labels else ""
    firing = f'count(ALERTS{{alertname="{rule.name}",alertstate="firing"{chosen}}})'
    if case.count < 0 and does_fire:
        return {
            "expr": f"{firing} > bool 0",
            "eval_time": case.at,
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
    samples = [{"labels": "{}", "value": case.count}] if does_fire else []
    return {"expr": firing, "eval_time": case.at, "exp_samples": samples}


def _quantities(case: RuleCase, series: Mapping[str, Series]) -> list[Series]:
    names = [found["name"].removeprefix("$") for key in case.series if (found := _OF_CASE.fullmatch(key))]
    return [series[name] for name in names if name in series]


def _input(key: str, values: str, series: Mapping[str, Series], number: int) -> tuple[str, str]:
    """Returns a promtool input series under the series name with this index, with values in the unit of that
    name.
    """
    found = _OF_CASE.fullmatch(key)
    assert found is not None, key
    if not key.startswith("$"):
        return key, values
    one = series[found["name"][1:]]
    name = one.names[min(number, len(one.names) - 1)]
    labels = found["labels"] or f"{{{one.labels}}}"
    return f"{name.name}{labels}", values if name.scale == 1.0 else _scaled(values, 1.0 / name.scale)


def _scaled(values: str, by: float) -> str:
    """Multiplies the values of a promtool series: "0.9x20" times 100 is "90x20"."""
    return " ".join(_scaled_word(word, by) for word in values.split())


def _scaled_word(word: str, by: float) -> str:
    head, times, count = word.partition("x")
    return _NUMBER.sub(lambda found: f"{float(found[0]) * by:.10g}", head) + times + count

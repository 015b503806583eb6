"""Formats the results of `holdfast check`: lines of text, or one JSON document."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.core.checks.judged import Judged, worst
from holdfast.core.plurals import counted
from holdfast.model.checks import FAIL, PASS, SKIP, WARN, Baseline, Finding, NodeChecks, Outcome, Spec
from holdfast.views.languages import Language, said
from holdfast.views.lines import Line

NAMES_MAX = 6
NAMES_IN_LINE = 5
_MARKS = {PASS: "ok", WARN: "WARN", FAIL: "FAIL", SKIP: "skip"}
_STYLE = {PASS: "", WARN: "strong", FAIL: "error", SKIP: "quiet"}
_TEXT = {
    "en": {
        "isolate": "A device or node is faulty: do not use {nodes} for training.",
        "stop": "The training cannot run with these settings: {why}",
        "pass": "fit: {checks} passed",
        "fail": "not fit: {failed} failed",
        "warn": "fit, with warnings: {warned}",
        "skip": "no check gave a result",
        "skipped": "{skipped} skipped",
        "expected": "expected",
        "advice": "what to do",
        "no answer": "no answer",
        ":": ": ",
        "nothing": "this node has no baseline yet; the next passed check creates one",
    },
    "zh": {
        "isolate": "设备或节点已损坏：请勿在本次训练中使用 {nodes}。",
        "stop": "按现状无法训练：{why}",
        "pass": "可用：{passed} 项通过",
        "fail": "不可用：{failed} 项失败",
        "warn": "可用，有 {warned} 项需关注",
        "skip": "没有任何可判断的结果",
        "skipped": "跳过 {skipped} 项",
        "expected": "应为",
        "advice": "建议",
        "no answer": "无应答",
        ":": "：",
        "nothing": "尚未学习到该节点的信息；检查通过后会记录",
    },
}


def report(nodes: Sequence[NodeChecks], verdict: Judged, language: Language, took_s: float) -> Iterator[Line]:
    """Yields the lines of the report: one for each check of each node, the problems with advice, and the totals.

    `took_s`: how long all checks took.
    """
    words = _TEXT[language]
    for node in nodes:
        if len(nodes) > 1 or node.why_not:
            yield Line(node.node, "strong")
        if node.why_not:
            yield Line(f"  {words['no answer']}{words[':']}{node.why_not}", "error")
        width = max((len(outcome.check) for outcome in node.outcomes), default=0)
        for outcome in node.outcomes:
            if outcome.status != SKIP:
                yield from _outcome(outcome, width, language)
        yield from _skipped(node.outcomes, width)
    yield Line()
    for name in verdict.isolate:
        yield Line(words["isolate"].format(nodes=name), "error")
    if verdict.stop:
        yield Line(words["stop"].format(why=verdict.stop), "error")
    yield Line(f"{_sum(nodes, verdict, language)} ({took_s:.1f} s)", _STYLE[verdict.status] or "strong")


def _skipped(outcomes: Sequence[Outcome], width: int) -> Iterator[Line]:
    """Yields lines about skipped checks, grouped by reason; without a GPU a dozen checks have the same
    one.
    """
    names: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.status == SKIP:
            names.setdefault(worst(outcome).why, []).append(outcome.check)
    for why, those in names.items():
        yield Line(f"  {_MARKS[SKIP]:<4} {those[0]:<{width}}  {why}".rstrip(), _STYLE[SKIP])
        for place in range(1, len(those), NAMES_IN_LINE):
            yield Line(
                f"  {'':<4} {'':<{width}}  + {', '.join(those[place : place + NAMES_IN_LINE])}", _STYLE[SKIP]
            )


def _sum(nodes: Sequence[NodeChecks], verdict: Judged, language: Language) -> str:
    count = {status: 0 for status in _MARKS}
    for node in nodes:
        for outcome in node.outcomes:
            count[outcome.status] += 1
        count[WARN] += bool(node.why_not)
    words = _TEXT[language]
    text = words[verdict.status].format(
        checks=counted(count[PASS], "check"), passed=count[PASS], failed=count[FAIL], warned=count[WARN]
    )
    if count[SKIP]:
        text += ("，" if language == "zh" else ", ") + words["skipped"].format(skipped=count[SKIP])
    return text


def _outcome(outcome: Outcome, width: int, language: Language) -> Iterator[Line]:
    words = _TEXT[language]
    shown = [finding for finding in outcome.findings if finding.status in (WARN, FAIL)]
    if not shown:
        finding = worst(outcome)
        text = finding.measured or finding.why
        yield Line(f"  {_MARKS[PASS]:<4} {outcome.check:<{width}}  {text}".rstrip())
        return
    for finding in shown[:NAMES_MAX]:
        device = f"{finding.device}: " if finding.device else ""
        mark = f"  {_MARKS[finding.status]:<4} {outcome.check:<{width}}"
        yield Line(f"{mark}  {device}{finding.why or finding.measured}", _STYLE[finding.status])
        indent = " " * (width + 9)
        if finding.expected:
            whence = f" ({finding.whence})" if finding.whence else ""
            seen = f"{finding.measured}; " if finding.why and finding.measured else ""
            yield Line(f"{indent}{seen}{words['expected']}{words[':']}{finding.expected}{whence}")
        if advice := said(finding.advice, language):
            yield Line(f"{indent}{words['advice']}{words[':']}{advice}")
    if len(shown) > NAMES_MAX:
        yield Line(f"{' ' * (width + 9)}… +{len(shown) - NAMES_MAX}", "quiet")


def document(
    suite: str, nodes: Sequence[NodeChecks], verdict: Judged, specs: Sequence[Spec], took_s: float
) -> dict[str, Any]:
    """Returns the JSON document of `holdfast check`.

    `checks` has one entry for each check of each node, with its worst finding first and all findings below.
    """
    costs = {spec.name: spec.cost for spec in specs}
    return {
        "suite": suite,
        "status": verdict.status,
        "seconds": round(took_s, 3),
        "isolate": [{"node": node, "why": why} for node, why in verdict.isolate.items()],
        "stop": verdict.stop,
        "nodes": [
            {"node": node.node, "seconds": round(node.seconds, 3), "why_not": node.why_not} for node in nodes
        ],
        "checks": [
            _checked(node.node, outcome, costs.get(outcome.check, ""))
            for node in nodes
            for outcome in node.outcomes
        ],
        "facts": [
            {"node": node.node, "check": outcome.check, **_fact(fact)}
            for node in nodes
            for outcome in node.outcomes
            for fact in outcome.facts
        ],
    }


def _checked(node: str, outcome: Outcome, cost: str) -> dict[str, Any]:
    finding = worst(outcome)
    return {
        "name": outcome.check,
        "area": outcome.area,
        "cost": cost,
        "node": node,
        **_found(finding),
        "status": outcome.status,
        "seconds": round(outcome.seconds, 4),
        "findings": [_found(one) for one in outcome.findings],
    }


def _found(finding: Finding) -> dict[str, Any]:
    return {
        "status": finding.status,
        "device": finding.device,
        "measured": finding.measured,
        "expected": finding.expected,
        "whence": finding.whence,
        "why": finding.why,
        "advice": finding.advice.en,
        "advice_zh": finding.advice.zh,
        "fault": finding.fault,
        "category": finding.category,
    }


def _fact(fact: Any) -> dict[str, Any]:
    fields = {"device": fact.device, "name": fact.name, "value": fact.value, "unit": fact.unit}
    if fact.unit:  # a number that others may want to compare or draw
        fields |= {
            "model": fact.model,
            "peers": fact.peers,
            "low_is_bad": fact.low_is_bad,
            "spread": fact.spread,
        }
    return fields


def listing(specs: Sequence[Spec], language: Language) -> Iterator[str]:
    """Yields the list of checks: name, cost, whether it is part of the boot check, and what it examines."""
    width = max((len(spec.name) for spec in specs), default=0)
    for spec in specs:
        quick = "quick" if spec.quick else ""
        needs = f" [{', '.join(spec.needs)}]" if spec.needs else ""
        yield f"{spec.name:<{width}}  {spec.cost:<7} {quick:<5}  {said(spec.what, language)}{needs}"


def listed(spec: Spec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "area": spec.area,
        "contexts": list(spec.contexts),
        "cost": spec.cost,
        "timeout_s": spec.timeout_s,
        "needs": list(spec.needs),
        "quick": spec.quick,
        "bench": spec.bench,
        "what": spec.what.en,
        "what_zh": spec.what.zh,
    }


def baseline_lines(known: Baseline) -> Iterable[str]:
    """Returns lines that list each device of the baseline with the date of its first measurement and its
    values.
    """
    if not known.facts:
        return [_TEXT["en"]["nothing"]]
    lines = []
    for device in sorted(known.facts):
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(known.at_s.get(device, 0.0)))
        lines.append(f"{device}  (since {since})")
        lines += [f"  {name} = {value}" for name, value in sorted(known.facts[device].items())]
    return lines

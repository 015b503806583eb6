"""Implements `holdfast rules`: lists, writes and lints alert rules and dashboards for Prometheus and
Grafana.
"""

import time
from pathlib import Path
from typing import Annotated

import msgspec

from holdfast.cli.line.flags import App, Argument, Exit, Option
from holdfast.cli.line.output import put, put_json, say
from holdfast.core.metrics.dashboards import grafana
from holdfast.core.metrics.lint import Judged, judged
from holdfast.core.metrics.promql import expanded
from holdfast.core.metrics.rule_files import (
    KNOWN,
    every_rule,
    known_file,
    operator_form,
    promtool_tests,
    rule_file,
)
from holdfast.core.metrics.yaml_text import yaml_text
from holdfast.metrics.prometheus import Prometheus, PrometheusUnavailable
from holdfast.metrics.rule_lint import read_has
from holdfast.metrics.rule_store import package_rules
from holdfast.model.monitoring.alert_rules import RuleBook

CANNOT_FIRE, REFUSED = 1, 2
KNOWN_FILE = "holdfast-known.rules.yml"
NAME_COLUMNS = 28

app = App()

Json = Annotated[bool, Option("--json", help="Print one JSON document instead of text.")]


@app.callback()
def rules() -> None:
    """Alert rules and dashboards for Prometheus and Grafana. Lists, writes and lints them."""


@app.command("list")
def list_(json: Json = False) -> None:
    """Lists all alert rules. Shows the severity and the description of each."""
    book = package_rules()
    if json:
        put_json({"rules": [_document(book, name) for name in range(len(every_rule(book)))]})
        return
    for group in book.groups:
        put(f"{group.name}:")
        for rule in group.rules:
            after = "at once" if rule.for_ == "0s" else f"after {rule.for_}"
            put(f"  {rule.name:<{NAME_COLUMNS}} {rule.severity}, {after}: {rule.says}")


@app.command()
def write(
    folder: Annotated[
        Path, Argument("DIR", help="Output folder; created if missing. Existing files are replaced.")
    ],
) -> None:
    """Writes rule files, their tests, the Kubernetes form and dashboards to one folder."""
    book = package_rules()
    try:
        for name, text in files_of(book).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            put(str(path))
    except OSError as error:
        say(f"{error.filename}: {error.strerror}")
        raise Exit(REFUSED) from error


@app.command()
def lint(
    prometheus: Annotated[
        str | None,
        Option("--prometheus", metavar="URL", help="URL of the Prometheus that evaluates the rules."),
    ] = None,
    everything: Annotated[bool, Option("--all", help="Also list the rules that can fire.")] = False,
    json: Json = False,
) -> None:
    """Lists the rules that can never fire on a Prometheus, with reasons. Exits with 1 if there are any."""
    if prometheus is None:
        say("--prometheus URL is required")
        raise Exit(REFUSED)
    book = package_rules()
    try:
        found = judged(book, read_has(Prometheus(prometheus), book, time.time()))
    except PrometheusUnavailable as error:
        say(str(error))
        raise Exit(REFUSED) from error
    if json:
        put_json({"rules": [{**msgspec.to_builtins(one), "can_fire": one.can_fire} for one in found]})
    else:
        for line in report_lines(found, everything=everything):
            put(line)
    if not all(one.can_fire for one in found):
        raise Exit(CANNOT_FIRE)


def report_lines(found: list[Judged], *, everything: bool) -> list[str]:
    lines = []
    for one in found:
        if one.why:
            lines.append(f"{one.rule:<{NAME_COLUMNS}} cannot fire: {'; '.join(one.why)}")
        elif everything:
            lines.append(f"{one.rule:<{NAME_COLUMNS}} can fire{''.join(f'; {note}' for note in one.notes)}")
    dead = sum(not one.can_fire for one in found)
    unloaded = sum(any("not loaded" in note for note in one.notes) for one in found)
    lines.append(
        f"{len(found)} rules: {len(found) - dead} can fire, {dead} cannot; {unloaded} are not loaded in "
        "this Prometheus"
    )
    return lines


def files_of(book: RuleBook) -> dict[str, str]:
    """Returns the texts of all rule and dashboard files, by name relative to the folder."""
    files = {f"holdfast-{group.name}.rules.yml": yaml_text(rule_file(group, book)) for group in book.groups}
    files[KNOWN_FILE] = yaml_text(known_file(book))
    files["kubernetes/prometheusrule.yaml"] = yaml_text(operator_form(book))
    for group in book.groups:
        asks = any(KNOWN in rule.needs for rule in group.rules)
        tested = [f"../holdfast-{group.name}.rules.yml", *([f"../{KNOWN_FILE}"] if asks else [])]
        files[f"tests/holdfast-{group.name}.test.yml"] = yaml_text(promtool_tests(group, book, tested))
    for dashboard in book.dashboards:
        document = msgspec.json.format(msgspec.json.encode(grafana(dashboard, book.series)), indent=2)
        files[f"dashboards/{dashboard.uid}.json"] = f"{document.decode()}\n"
    return files


def _document(book: RuleBook, number: int) -> dict[str, object]:
    rule = every_rule(book)[number]
    return {
        "name": rule.name,
        "severity": rule.severity,
        "for": rule.for_,
        "says": rule.says,
        "advice": rule.advice,
        "expr": expanded(rule.expr, book.series),
        "source": rule.source,
    }

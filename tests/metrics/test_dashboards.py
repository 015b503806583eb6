"""The dashboards: Grafana's own models hold every field of theirs, and a real Prometheus takes every expression."""

import json
import re

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from holdfast.core.metrics.dashboards import COLUMNS, expressions, grafana
from holdfast.core.metrics.promql import metric_names
from holdfast.core.metrics.rule_files import KNOWN
from holdfast.core.metrics.table import series_names
from holdfast.metrics.prometheus import Prometheus
from holdfast.metrics.rule_store import package_rules
from metrics.servers import prometheus

BOOK = package_rules()
register_default_plugins()


def left_out(written, kept, place=""):
    """Places of a document that another has not, or has otherwise."""
    if isinstance(written, dict) and isinstance(kept, dict):
        for key, value in written.items():
            yield from left_out(value, kept[key], f"{place}.{key}") if key in kept else [f"{place}.{key}"]
    elif isinstance(written, list) and isinstance(kept, list) and len(written) == len(kept):
        for number, pair in enumerate(zip(written, kept, strict=True)):
            yield from left_out(*pair, f"{place}[{number}]")
    elif written != kept:
        yield f"{place}: {written!r}, not {kept!r}"


@pytest.mark.parametrize("dashboard", BOOK.dashboards, ids=lambda one: one.uid)
def test_grafanas_models_know_every_field(dashboard):
    document = grafana(dashboard, BOOK.series)
    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(document)))
    assert list(left_out(document, kept)) == []


@pytest.mark.parametrize("dashboard", BOOK.dashboards, ids=lambda one: one.uid)
def test_panels_lie_beside_each_other_and_not_upon(dashboard):
    panels = grafana(dashboard, BOOK.series)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= COLUMNS
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("dashboard", BOOK.dashboards, ids=lambda one: one.uid)
def test_the_reader_chooses_the_data_source(dashboard):
    document = grafana(dashboard, BOOK.series)
    variables = {one["name"] for one in document["templating"]["list"]}
    assert "datasource" in variables
    for panel in document["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        used = set(re.findall(r"\$\{(\w+)\}", json.dumps(panel)))
        assert used <= variables, panel["title"]


def test_expressions_name_only_metrics_that_are_known():
    known = set(BOOK.facts) | {old for fact in BOOK.facts.values() for old in fact.old_names}
    for dashboard in BOOK.dashboards:
        for expression in expressions(dashboard, BOOK.series):
            names = metric_names(expression)
            assert names <= known | series_names() | {KNOWN}, expression
            assert names or "ALERTS" in expression, expression


def test_a_prometheus_takes_every_expression(tools, started, tmp_path):
    server = started(prometheus(tmp_path, []))
    asked = Prometheus(server.url)
    for dashboard in BOOK.dashboards:
        for expression in expressions(dashboard, BOOK.series):
            asked.now(re.sub(r"\$\{\w+\}", "node-1", expression))

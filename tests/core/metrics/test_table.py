"""The table of metrics: Prometheus' conventions hold, and its page tells all of it."""

import re
from pathlib import Path

import pytest

from holdfast.core.metrics.table import BY_NAME, METRICS

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics -->\n", "<!-- /metrics -->"
UNITS = ("seconds", "bytes", "ratio", "watts", "celsius")
# Labels with a value for each rank, device or port: only in metrics that bound how many there are.
WIDE = {"rank", "device", "port"}


def table():
    rows = ["| metric | type | labels | exported by | meaning | source |", "|---|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        cells = (
            f"`{metric.name}`",
            metric.type,
            labels,
            ", ".join(metric.exported_by),
            metric.help,
            metric.source,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def test_the_page_lists_every_metric_as_it_is(request):
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    inside, _, after = rest.partition(END)
    if request.config.getoption("--golden"):
        PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}")
        inside = table()
    assert inside == table(), "docs/metrics.md is stale: pytest tests/core/metrics/test_table.py --golden"


def test_names_are_said_once():
    assert len(BY_NAME) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_conventions_hold(metric):
    assert re.fullmatch(r"holdfast_[a-z][a-z0-9_]*", metric.name)
    assert (metric.type == "counter") == metric.name.endswith("_total")
    assert (metric.type == "info") == metric.name.endswith("_info")
    assert (metric.type == "histogram") == bool(metric.buckets)
    plain = metric.name.removesuffix("_total")
    assert metric.unit in ("", *UNITS)
    unit = next((unit for unit in UNITS if plain.endswith(f"_{unit}")), "")
    assert metric.unit == unit, "the unit is the end of the name"
    assert not {"job", "instance"} & set(metric.labels), "Prometheus sets these itself"
    assert metric.exported_by
    assert metric.source
    assert "|" not in metric.help


def test_only_bounded_metrics_have_a_label_for_each_rank_device_or_port():
    wide = {metric.name for metric in METRICS if WIDE & set(metric.labels)}
    assert all(
        name.startswith(("holdfast_device_", "holdfast_port_", "holdfast_rank_at_fault")) for name in wide
    )

"""What is written for a scraper is read back by prometheus-client's own parsers, value for value."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_text

from holdfast.core.metrics.exposition import SERIES_MAX, bounded, wants_open_metrics, written
from holdfast.core.metrics.table import METRICS, RECOVERY_BUCKETS_S
from holdfast.model.monitoring.metrics import Distribution, Exemplar, Sample

ODD = 'a "quoted"\nline \\ and 节点'


def every_metric(value=1.0):
    """One sample of each metric of the table."""
    return [
        Distribution(metric.name, tuple(map(str, metric.labels)), (1,) * (len(metric.buckets) + 1), 7.5)
        if metric.type == "histogram"
        else Sample(metric.name, tuple(map(str, metric.labels)), 1.0 if metric.type == "info" else value)
        for metric in METRICS
    ]


def read(samples, *, open_metrics):
    text = written(samples, open_metrics=open_metrics).decode()
    families = (read_open if open_metrics else read_text)(text)
    return {
        (one.name, tuple(sorted(one.labels.items()))): one for family in families for one in family.samples
    }


@pytest.mark.parametrize("open_metrics", [True, False])
def test_every_metric_is_read_back(open_metrics):
    found = read(every_metric(3.25), open_metrics=open_metrics)
    for metric in METRICS:
        labels = tuple(sorted((label, label) for label in metric.labels))
        if metric.type == "histogram":
            assert found[f"{metric.name}_sum", labels].value == 7.5
            assert found[f"{metric.name}_count", labels].value == len(metric.buckets) + 1
        else:
            assert found[metric.name, labels].value == (1.0 if metric.type == "info" else 3.25)


@given(st.text(max_size=40), st.floats(allow_nan=True, allow_infinity=True))
@pytest.mark.parametrize("open_metrics", [True, False])
def test_any_label_and_any_number(open_metrics, text, value):
    text = text.encode("utf-8", "replace").decode().replace("\r", " ").replace("\x85", " ")
    found = read([Sample("holdfast_job_loss", (text,), value)], open_metrics=open_metrics)
    one = found["holdfast_job_loss", (("job_name", text),)]
    assert one.value == value or (math.isnan(one.value) and math.isnan(value))


def test_labels_are_escaped():
    found = read([Sample("holdfast_job_step", (ODD,), 1.0)], open_metrics=True)
    assert ("holdfast_job_step", (("job_name", ODD),)) in found


def test_exemplars_stand_in_open_metrics_alone():
    example = Exemplar((("incident", "7"),), 1.0, 1_795_640_000.25)
    counter = Sample("holdfast_incidents_total", ("pretrain", "xid_79", "reschedule-isolated"), 3.0, example)
    counts = (0, 1) + (0,) * (len(RECOVERY_BUCKETS_S) - 1)
    examples = (None, example) + (None,) * (len(counts) - 2)
    buckets = Distribution("holdfast_recovery_seconds", ("pretrain",), counts, 2.0, examples)
    text = written([counter, buckets], open_metrics=True).decode()
    told = [sample for family in read_open(text) for sample in family.samples if sample.exemplar]
    assert [(one.name, one.exemplar.labels) for one in told] == [
        ("holdfast_incidents_total", {"incident": "7"}),
        ("holdfast_recovery_seconds_bucket", {"incident": "7"}),
    ]
    assert b"# {" not in written([counter, buckets], open_metrics=False)


def test_an_exemplar_that_is_too_long_is_left_out():
    example = Exemplar((("incident", "x" * 200),), 1.0)
    text = written([Sample("holdfast_incidents_total", ("a", "b", "c"), 1.0, example)], open_metrics=True)
    assert b"# {" not in text


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        # Prometheus 2.42, and 3.x
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2", True),
        ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.1", False),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense", False),
        (",;=;,", False),
    ],
)  # fmt: skip
def test_content_negotiation(accept, is_open):
    assert wants_open_metrics(accept) is is_open


def test_too_many_series_are_left_out_those_of_devices_first():
    devices = [Sample("holdfast_device_power_watts", ("job", "node", str(n)), 1.0) for n in range(3_000)]
    job = [Sample("holdfast_job_step", ("job",), 1.0)]
    kept, dropped = bounded([*devices, *job])
    assert len(kept) == SERIES_MAX
    assert dropped == 1_001
    assert kept[-1] == job[0]
    assert bounded(job) == (tuple(job), 0)

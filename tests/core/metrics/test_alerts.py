"""Alertmanager's alerts as evidence for the jobs on that node."""

import msgspec
import pytest

from holdfast.core.metrics.alerts import NAME, evidence
from holdfast.model.documents.actions import AlertWebhook
from holdfast.model.monitoring.alerts import ReceivedAlert
from holdfast.parsers.alertmanager import ALERTS_MAX, TEXT_MAX, received

WEBHOOK = {
    "version": "4",
    "groupKey": "{}:{}",
    "truncatedAlerts": 0,
    "status": "firing",
    "receiver": "holdfast",
    "groupLabels": {},
    "commonLabels": {},
    "commonAnnotations": {},
    "externalURL": "http://am:9093",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "GpuXid", "Hostname": "node-1.example.com", "gpu": "3", "xid": "79"},
            "annotations": {"summary": "GPU 3 has reported Xid 79"},
            "startsAt": "2026-01-02T03:04:05.6Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus:9090/graph",
            "fingerprint": "c0ffee",
        }
    ],
}
JOBS = {"pretrain": ("node-0", "node-1"), "other": ("node-2",)}


def webhook(**more):
    return msgspec.convert({**WEBHOOK, **more}, AlertWebhook)


def test_a_webhook_becomes_evidence_of_the_job_on_that_node():
    alerts = received(webhook())
    (one,) = evidence(alerts, JOBS)
    assert (one.job, one.node) == ("pretrain", "node-1")
    assert one.text == "alert GpuXid fires for node-1: GPU 3 has reported Xid 79"
    assert one.at_s == pytest.approx(1_767_323_045.6)
    assert one.status == "firing"
    assert evidence(alerts, JOBS, {("pretrain", one.key)}) == []


def alert(**labels):
    return ReceivedAlert(
        status="firing",
        labels={"alertname": "X", **labels},
        annotations={},
        starts_s=1.0,
        ends_s=None,
        fingerprint="f",
    )


@pytest.mark.parametrize(
    "labels",
    [
        {"instance": "node-1:9100"},
        {"instance": "node-1.example.com:9400"},
        {"node": "NODE-1"},
        {"instance": "10.0.0.9:9400", "Hostname": "node-1"},
    ],
)
def test_names_of_nodes(labels):
    assert [one.node for one in evidence([alert(**labels)], JOBS)] == ["node-1"]


@pytest.mark.parametrize(
    "labels",
    [{}, {"instance": "node-11:9100"}, {"instance": "10.0.0.9:9100"}, {"alertname": NAME, "node": "node-1"}],
)
def test_other_nodes_no_node_and_our_own_alerts_are_no_evidence(labels):
    assert evidence([alert(**labels)], JOBS) == []


def test_an_address_is_a_name():
    assert [one.job for one in evidence([alert(instance="10.0.0.9:9100")], {"a": ("10.0.0.9",)})] == ["a"]


def test_a_resolved_alert_is_news_of_its_own():
    firing, resolved = alert(node="node-1"), alert(node="node-1")
    resolved = ReceivedAlert(
        status="resolved", labels=resolved.labels, annotations={}, starts_s=1.0, ends_s=9.0, fingerprint="f"
    )
    found = evidence([firing, resolved, firing], JOBS)
    assert [(one.text.split()[2], one.at_s) for one in found] == [("fires", 1.0), ("is", 9.0)]


def test_many_alerts_and_long_texts_are_cut():
    assert len(received(webhook(alerts=WEBHOOK["alerts"] * (ALERTS_MAX + 1)))) == ALERTS_MAX
    long = {**WEBHOOK["alerts"][0], "annotations": {"summary": "x" * 5_000}, "fingerprint": "f" * 5_000}
    (one,) = received(webhook(alerts=[long]))
    assert len(one.annotations["summary"]) == len(one.fingerprint) == TEXT_MAX


def test_the_key_is_short_whatever_the_labels():
    wild = alert(node="node-1", more="\ud800" * 900)
    (one,) = evidence([wild], JOBS)
    assert len(one.key) == 24

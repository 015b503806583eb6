"""Incidents as alerts that resolve, and Alertmanager's alerts as evidence for the jobs on that node."""

import msgspec
import pytest

from core.job.test_story import BUG, POLICY, START, told
from holdfast.core.metrics.alerts import ENDED_SENT_S, LIVES_S, NAME, alerts_of, evidence
from holdfast.model.documents.actions import AlertWebhook
from holdfast.model.events import (
    AttemptStarted,
    AttemptStopped,
    Placed,
    RankExited,
    StepReached,
    VerdictReached,
    WorkersPlaced,
)
from holdfast.model.monitoring.alerts import ReceivedAlert
from holdfast.parsers.alertmanager import ALERTS_MAX, TEXT_MAX, received

FAILED = RankExited(at_s=10.0, attempt=1, worker=0, rank=0, code=-9)
AGAIN = (
    VerdictReached(at_s=11.0, incident=1, verdict=BUG),
    AttemptStopped(at_s=12.0, attempt=1),
    WorkersPlaced(at_s=13.0, attempt=2, placed=(Placed(0, "n0"),)),
    AttemptStarted(at_s=14.0, attempt=2),
    StepReached(at_s=20.0, attempt=2, step=1),
)
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


def summary(*events):
    return told(*START, *events, policy=POLICY)[0].summary()


def test_no_incident_no_alert():
    assert alerts_of(summary(), 9.0) == []


def test_an_open_incident_lives_until_it_is_sent_again():
    (one,) = alerts_of(summary(FAILED), 15.0, url="http://page")
    assert one.labels == {"alertname": NAME, "severity": "critical", "job_name": "llama", "incident": "1"}
    assert (one.starts_s, one.ends_s, one.url) == (10.0, 15.0 + LIVES_S, "http://page")


def test_the_verdict_changes_no_label():
    (before,), (after,) = alerts_of(summary(FAILED), 15.0), alerts_of(summary(FAILED, AGAIN[0]), 15.0)
    assert before.labels == after.labels
    assert after.annotations["category"] == "user_code"
    assert "KeyError" in after.annotations["summary"]


def test_a_recovered_incident_is_resolved_and_later_forgotten():
    over = summary(FAILED, *AGAIN)
    (one,) = alerts_of(over, 25.0)
    assert one.ends_s == pytest.approx(20.0)
    assert alerts_of(over, 21.0 + ENDED_SENT_S) == []


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

"""A real Alertmanager takes incidents and resolves them, and its webhook becomes evidence."""

import json
import threading
import time
from urllib.request import urlopen

import msgspec
import pytest

from holdfast.core.metrics.alerts import NAME
from holdfast.metrics.alert_receiver import AlertReceiver, NotRecorded
from holdfast.metrics.alertmanager import AlertmanagerUnavailable, post
from holdfast.model.documents.actions import AlertWebhook
from holdfast.model.monitoring.alerts import Alert, ReceivedAlert
from holdfast.parsers.alertmanager import received
from metrics.servers import Played, alertmanager, free_port, text
from run.place import wait_for

ONE = Alert(labels={"alertname": "X"}, annotations={}, starts_s=1.0, ends_s=2.0)


class Webhook:
    """A server that receives webhooks as the server of the page does: the parts behind its route."""

    def __init__(self, jobs):
        self.notes = []
        self.answers = []
        self.receiver = AlertReceiver(lambda: jobs, lambda job, found: self.notes.extend(found))
        self._lock = threading.Lock()

    def __call__(self, handler):
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        with self._lock:
            alerts = received(msgspec.json.decode(body, type=AlertWebhook))
            self.answers.append(self.receiver.record(self.receiver.new(alerts)))
        text("", 200)(handler)


def listed(server):
    with urlopen(f"{server.url}/api/v2/alerts", timeout=60) as answer:
        return json.load(answer)


def test_our_own_alert_resolves_and_is_no_evidence(tools, started, tmp_path):
    webhook = Webhook({"pretrain": ("node-1",)})
    server = started(alertmanager(tmp_path, started(Played(webhook)).url))
    now_s = time.time()
    labels = {"alertname": NAME, "job_name": "pretrain", "node": "node-1"}
    post(server.url, [Alert(labels=labels, annotations={}, starts_s=now_s - 10.0, ends_s=now_s + 300.0)])
    (one,) = listed(server)
    assert one["labels"] == labels and one["status"]["state"] == "active"
    wait_for("the first webhook", lambda: webhook.answers)
    post(server.url, [Alert(labels=labels, annotations={}, starts_s=now_s - 10.0, ends_s=time.time())])
    wait_for("it is resolved", lambda: listed(server) == [])
    wait_for("both webhooks", lambda: len(webhook.answers) >= 2)
    assert webhook.notes == []
    counts = {one.labels[0]: one.value for one in webhook.receiver.samples()}
    assert counts["firing"] >= 1 and counts["resolved"] >= 1


def test_another_alert_is_evidence_for_the_job_on_that_node_once(tools, started, tmp_path):
    webhook = Webhook({"pretrain": ("node-1", "node-2"), "other": ("node-3",)})
    server = started(alertmanager(tmp_path, started(Played(webhook)).url))
    now_s = time.time()
    labels = {"alertname": "GpuXid", "Hostname": "node-2", "gpu": "3"}
    alert = Alert(
        labels=labels, annotations={"summary": "Xid 79"}, starts_s=now_s - 10.0, ends_s=now_s + 300.0
    )
    post(server.url, [alert])
    wait_for("the webhook", lambda: webhook.notes)
    (note,) = webhook.notes
    assert (note.job, note.node, note.text) == ("pretrain", "node-2", "alert GpuXid fires for node-2: Xid 79")
    post(server.url, [Alert(labels=labels, annotations={}, starts_s=now_s - 10.0, ends_s=now_s - 0.5)])
    wait_for("its end", lambda: len(webhook.notes) == 2)
    assert "is resolved" in webhook.notes[1].text


def test_a_job_that_cannot_be_asked_gets_the_alert_of_the_next_webhook():
    asked = []

    def note(job, found):
        asked.append((job, len(found)))
        if len(asked) == 1:
            raise NotRecorded(f"job {job} does not answer")

    receiver = AlertReceiver(lambda: {"a": ("node-1",), "b": ("node-1",)}, note)
    alert = ReceivedAlert(
        status="firing",
        labels={"alertname": "X", "node": "node-1"},
        annotations={},
        starts_s=1.0,
        ends_s=None,
        fingerprint="f",
    )
    first = receiver.record(receiver.new([alert]))
    assert (first.new, first.failed) == (1, ("job a does not answer",))
    assert receiver.record(receiver.new([alert])).new == 1
    assert receiver.new([alert]) == {}
    assert asked == [("a", 1), ("b", 1), ("a", 1)]


@pytest.mark.parametrize(
    ("status", "is_for_good"), [(400, True), (404, True), (429, False), (500, False), (503, False)]
)
def test_answers_of_an_alertmanager_that_does_not_take_them(started, status, is_for_good):
    def answer(handler):
        handler.rfile.read(int(handler.headers["Content-Length"]))
        handler.send_response(status)
        handler.send_header("Retry-After", "7")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server = started(Played(answer))
    with pytest.raises(AlertmanagerUnavailable, match=str(status)) as told:
        post(server.url, [ONE])
    assert (told.value.is_for_good, told.value.retry_after_s) == (is_for_good, 7.0)


def test_nobody_listens():
    with pytest.raises(AlertmanagerUnavailable, match="cannot be reached"):
        post(f"http://127.0.0.1:{free_port()}", [ONE])


def test_one_that_never_answers_is_waited_for_no_longer(started):
    enough = threading.Event()
    server = started(Played(lambda handler: enough.wait(30)))
    with pytest.raises(AlertmanagerUnavailable):
        post(server.url, [ONE], timeout_s=0.3)
    enough.set()

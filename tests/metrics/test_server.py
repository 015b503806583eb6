"""Monitoring of `holdfast serve`: a real Prometheus scrapes it, a real Alertmanager sends alerts to a running job."""

import json
import signal
import socket
import subprocess
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from holdfast.client import ApiError
from holdfast.core.metrics.exposition import OPEN_METRICS, TEXT
from holdfast.core.metrics.table import BY_NAME
from holdfast.metrics.alertmanager import post
from holdfast.metrics.prometheus import Prometheus
from holdfast.model.documents.actions import AlertWebhook, WebhookAlert
from holdfast.model.monitoring.alerts import Alert
from metrics.servers import alertmanager, prometheus
from web.servers import Place, Server, until
from web.test_actions import TRAINS, runs_in

NODE = socket.gethostname()
FAILS_WHEN_TOLD = (
    "import os, time\n"
    "while os.environ['HOLDFAST_ATTEMPT'] == '1':\n"
    "    if os.path.exists(os.environ['NOTES'] + '/go'): raise ValueError('shard 19 is torn')\n"
    "    time.sleep(0.05)\n"
    f"{TRAINS}"
)


@pytest.fixture
def served(tmp_path):
    """served(place, flags): a server of this state folder, that ends with the test."""
    running = []

    def serve(root, *flags):
        running.append(Server(root, *flags))
        return running[-1]

    yield serve
    for server in running:
        server.stop()


def families(server, token="", accept=""):
    with server.http(token) as http:
        answer = http.get("metrics", headers={"Accept": accept} if accept else {})
    assert answer.status_code == 200, answer.text
    reader = (
        open_metrics if answer.headers["content-type"].startswith("application/openmetrics") else plain_text
    )
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in reader(answer.text)
        for sample in family.samples
    }, answer


def jobs_in(server):
    return sum(value for key, value in families(server)[0].items() if key[0] == "holdfast_jobs")


def test_both_formats_are_right_and_have_only_metrics_of_the_table(tmp_path, served):
    place = Place(tmp_path / "state")
    for number in range(5):
        place.job(f"llama-{number}")
    server = served(place.root)
    until(lambda: jobs_in(server) == 5)
    text, plain = families(server)
    newer, opened = families(server, accept="application/openmetrics-text; version=1.0.0")
    assert plain.headers["content-type"] == TEXT and opened.headers["content-type"] == OPEN_METRICS
    assert {key for key in text if key[0] != "holdfast_build_info"} == {
        key for key in newer if key[0] not in ("holdfast_build_info", "holdfast_build")
    }
    for name, *labels in text:
        assert "server" in BY_NAME[name].exported_by
        assert tuple(label for label, _ in labels) == tuple(sorted(BY_NAME[name].labels))
    assert text["holdfast_server_warnings",] == 0
    checked = subprocess.run(["promtool", "check", "metrics"], input=plain.content, capture_output=True)
    assert checked.returncode == 0, checked


def test_the_number_of_series_does_not_follow_the_number_of_ended_jobs(tmp_path, served):
    place = Place(tmp_path / "state")
    for number in range(40):
        place.job(f"llama-{number}")
    server = served(place.root)
    until(lambda: jobs_in(server) == 40)
    assert len(families(server)[0]) < 60


def test_access_is_that_of_documents(tmp_path, served):
    place = Place(tmp_path / "state")
    server = served(place.root)
    viewer, reporter = place.token("viewer"), place.token("reporter")
    with server.http() as http:
        assert http.get("metrics").status_code == 401
    with server.http(reporter) as http:
        assert http.get("metrics").status_code == 403
    assert families(server, viewer)[1].headers["cache-control"] == "no-store"


def test_a_real_prometheus_has_the_step_of_a_running_job(runs, served, started, tools, tmp_path):
    place = Place(runs.state)
    token = place.token("viewer")
    server = served(runs.state)
    runs_in(runs, 1, runs.python(TRAINS))
    scraper = started(prometheus(tmp_path, [server.address[1]], token=token))
    reading = Prometheus(scraper.url)
    (step,) = until(lambda: reading.now('holdfast_job_step{job_name="t"} > 0'))
    assert step.values[-1][1] > 0
    assert reading.now("sum(holdfast_jobs)")[0].values[-1][1] == 1


def alerts_in(runs):
    return [event for event in runs.events("finding-noted") if event["finding"] == "alert"]


def test_an_alert_of_a_real_alertmanager_is_evidence_in_a_running_job(runs, served, started, tools, tmp_path):
    place = Place(runs.state)
    token, viewer = place.token("reporter"), place.token("admin")
    server = served(runs.state)
    run = runs_in(runs, 1, runs.python(TRAINS))
    with server.client(viewer) as client:
        until(lambda: [row.nodes for row in client.jobs().jobs] == [(NODE,)])
        source = started(alertmanager(tmp_path, f"{server.url}api/v1/alerts", token))
        now_s = time.time()
        labels = {"alertname": "GpuXid", "instance": f"{NODE}:9400"}
        firing = Alert(labels=labels, annotations={"summary": "Xid 79"}, starts_s=now_s, ends_s=now_s + 600)
        post(source.url, [firing])
        (one,) = until(lambda: alerts_in(runs))
        assert one["text"] == f"alert GpuXid fires for {NODE}: Xid 79"
        assert one["numbers"]["status"] == "firing" and one["numbers"]["by"] == "the-reporter@127.0.0.1"
        post(source.url, [Alert(labels=labels, annotations={}, starts_s=now_s, ends_s=time.time())])
        until(lambda: len(alerts_in(runs)) == 2)
        assert "is resolved" in alerts_in(runs)[1]["text"]
        log = until(lambda: [line for line in client.log("t").lines if line.finding == "alert"])
        assert len(log) == 2
        done = [line for line in client.audit() if line.action == "alerts"]
        assert {line.result for line in done} == {"asked", "done"} and done[0].target == "t"
    counted = families(server, viewer)[0]
    assert counted["holdfast_alerts_received_total", ("status", "firing")] >= 1
    assert counted["holdfast_alerts_received_total", ("status", "resolved")] >= 1
    assert "alert GpuXid fires" in run.err


def webhook(*names, **labels):
    return AlertWebhook(
        version="4",
        alerts=tuple(
            WebhookAlert(
                status="firing",
                labels={"alertname": name, "node": NODE, **labels},
                startsAt="2026-01-02T03:04:05Z",
            )
            for name in names
        ),
    )


def test_an_alert_before_an_incident_is_shown_with_it_and_not_twice_after_a_restart(runs, served):
    place = Place(runs.state)
    token = place.token("operator")
    runs_in(runs, 1, runs.python(FAILS_WHEN_TOLD, "--unconditional-restart", "--max-restarts", "3"))
    first = served(runs.state)
    with first.client(token) as client:
        until(lambda: [row.nodes for row in client.jobs().jobs] == [(NODE,)])
        done = client.alerts(webhook("Hot", "Slow"))
        assert done.done and done.text == "2 alerts, 2 of them passed to 1 job"
        assert not client.alerts(webhook("Hot", "Slow")).done
        assert not client.alerts(webhook("Hot", node="elsewhere")).done
    first.stop()
    runs.go()
    runs_in(runs, 2, runs.runs[-1])
    second = served(runs.state)
    with second.client(token) as client:
        until(lambda: [row.nodes for row in client.jobs().jobs] == [(NODE,)])
        client.alerts(webhook("Hot", "Slow"))  # the job has them; the new server does not
        evidence = [one for one in client.incident("t", 1).evidence if one.kind == "alert"]
        assert [one.text for one in evidence] == [
            f"alert {name} fires for {NODE}: {name}" for name in ("Hot", "Slow")
        ]
        assert client.evidence("t", evidence[0].id).text == evidence[0].text
    assert len(alerts_in(runs)) == 2


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "version"),
        (b"nonsense", 400, "invalid"),
        (b"\xff", 400, "invalid"),
        (b"[]", 400, "invalid"),
        (b'{"version": "4"}', 400, "alerts"),
        (b'{"version": "4", "alerts": [{"labels": {}}]}', 400, "status"),
        (b'{"version": "4", "alerts": ' + b"[" * 100_000, 400, "invalid"),
        (b" " * ((1 << 20) + 1), 413, "larger"),
        (b'{"version": "4", "alerts": []}', 200, "0 alerts"),
    ],
)
def test_a_body_that_is_no_webhook_is_refused_with_the_reason(module_server, body, status, words):
    server, token = module_server
    with server.http(token) as http:
        answer = http.post("api/v1/alerts", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert words in json.loads(answer.content).get("error", {"text": answer.text})["text"]


@pytest.fixture(scope="module")
def module_server(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("state"))
    server = Server(place.root)
    yield server, place.token("reporter")
    server.stop()


def test_alerts_need_a_token(tmp_path, served):
    server = served(tmp_path / "state")
    with server.http() as http:
        answer = http.post("api/v1/alerts", json={"version": "4", "alerts": []})
    assert answer.status_code == 403 and "token create NAME --role reporter" in answer.text


def test_a_job_that_does_not_answer_is_asked_again(runs, served):
    place = Place(runs.state)
    token = place.token("reporter")
    run = runs_in(runs, 1, runs.python(TRAINS))
    server = served(runs.state)
    with server.client(place.token("viewer")) as client:
        until(lambda: [row.nodes for row in client.jobs().jobs] == [(NODE,)])
    run.signal(signal.SIGSTOP)
    with server.client(token, timeout_s=60.0) as client, pytest.raises(ApiError) as told:
        client.alerts(webhook("Hot"))
    assert told.value.status == 503 and "job t" in str(told.value)
    run.signal(signal.SIGCONT)
    with server.client(token, timeout_s=60.0) as client:
        until(lambda: client.alerts(webhook("Hot")).text)
    until(lambda: len(alerts_in(runs)) == 1)

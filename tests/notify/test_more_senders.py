"""Alertmanager, a real one, and Apprise."""

import json
import shutil
import subprocess
import time
import urllib.request

import pytest
from msgspec.structs import replace

from holdfast.core.metrics.alerts import RESEND_S
from holdfast.core.notify.outbox import Send
from holdfast.notify.config import ChannelConfig, ConfigRefused
from holdfast.notify.registry import MAKERS
from holdfast.notify.sender import Rejected, TryLater
from holdfast.notify.senders.alertmanager import Alertmanager
from metrics.servers import free_port
from notices_kit import made
from notify.receiver import GOOD, Receiver, Reply

BINARY = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
WAIT_S = 60.0


def order(notice):
    return Send(channel="c", notice=notice, reference="", count=1, key=f"{notice.id}/{notice.version}/c")


def opened(at_s=None, **fields):
    return made(at_s=at_s or time.time(), incident=1, link="https://hf.example.org/jobs/llama", **fields)


@pytest.fixture
def alertmanager(tmp_path):
    """Its address. On loopback, without a cluster."""
    if BINARY is None:
        pytest.skip("Alertmanager is not installed: make monitoring")
    port = free_port()
    config = tmp_path / "alertmanager.yml"
    config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    words = [
        *(BINARY, f"--config.file={config}", f"--storage.path={tmp_path / 'data'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="),
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    until_s = time.monotonic() + WAIT_S
    while alerts(url) is None:
        assert time.monotonic() < until_s and process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.05)
    yield url
    process.terminate()
    process.wait()


def alerts(url):
    try:
        with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=60) as answer:
            return json.load(answer)
    except OSError:
        return None


def wait_for(is_true):
    until_s = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_an_incident_is_an_alert_until_it_is_over(alertmanager):
    one = MAKERS["alertmanager"](
        ChannelConfig(name="c", kind="alertmanager", options={"url": alertmanager + "/"})
    )
    one.begin(())
    one.send(order(opened()))
    one.send(order(opened(version=2, event="verdict", category="gpu_oom")))
    wait_for(lambda: [one["annotations"].get("category") for one in alerts(alertmanager)] == ["gpu_oom"])
    (alert,) = alerts(alertmanager)
    assert alert["labels"]["job_name"] == "llama" and alert["labels"]["incident"] == "1"
    assert alert["status"]["state"] == "active"
    assert alert["generatorURL"] == "https://hf.example.org/jobs/llama"
    one.send(order(opened(version=3, event="recovered", severity="info", is_over=True)))
    wait_for(lambda: alerts(alertmanager) == [])


def test_open_alerts_are_sent_again_also_by_the_process_after():
    with Receiver() as receiver:
        now_s = [1_000.0]
        one = Alertmanager(receiver.url, "en", lambda: now_s[0])
        assert one.again_s == RESEND_S
        one.begin([opened(at_s=900.0)])  # of the process before
        one.again()
        assert len(receiver.requests[0].body) == 1
        one.send(order(opened(version=2, severity="info", is_over=True, at_s=1_000.0)))
        one.again()
        assert len(receiver.requests) == 2
        assert receiver.requests[1].body[0]["endsAt"].startswith("1970-01-01T00:16:40")
        one.send(order(replace(opened(at_s=1_000.0), id="other", severity="critical", is_over=True)))
        assert receiver.requests[2].body[0]["endsAt"] > "1970-01-01T00:16:41"  # a failure fires for a while


def test_an_alertmanager_in_trouble():
    with Receiver() as receiver:
        receiver.replies = [Reply(503), Reply(400), GOOD]
        one = Alertmanager(receiver.url, "en")
        with pytest.raises(TryLater, match="503"):
            one.send(order(opened()))
        with pytest.raises(Rejected, match="400"):
            one.send(order(opened()))
        one.send(order(opened()))


# Apprise ----------------------------------------------------------------------------------------------


# Apprise loads all of its plugins, and one of them a module that Python 3.13 has no more.
old_module = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


def anything(*urls):
    return MAKERS["apprise"](ChannelConfig(name="c", kind="apprise", options={"url": list(urls)}))


@old_module
def test_apprise_sends_what_it_has_an_address_for():
    with Receiver(lambda request: Reply()) as receiver:
        anything(receiver.url.replace("http://", "json://") + "/hook").send(order(opened()))
        (request,) = receiver.requests
    assert request.path == "/hook" and request.body["title"] == "llama: incident"
    assert "rank 1 was killed." in request.body["message"]
    assert request.body["type"] == "warning"


@old_module
def test_what_apprise_cannot_send_is_tried_later_with_its_own_words():
    with Receiver(lambda request: Reply(500)) as receiver:
        one = anything(receiver.url.replace("http://", "json://"))
        with pytest.raises(TryLater, match="Apprise could not send it: .*500"):
            one.send(order(opened()))


@old_module
def test_an_address_that_apprise_does_not_understand_is_refused():
    with pytest.raises(ConfigRefused, match="begin with nonsense:"):
        anything("nonsense://x")

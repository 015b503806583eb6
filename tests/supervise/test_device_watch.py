"""What Prometheus knows of an incident is noted beside the verdict, and nothing waits for it."""

import time

from core.metrics.test_ledger import FAILURE, START
from holdfast.core.job.decide import decide
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.observe.clock import JobClock
from holdfast.supervise.monitoring.device_watch import DeviceWatch
from metrics.servers import Played, free_port, text
from run.place import wait_for

POLICY = Policy(max_restarts=8, unconditional_restart=True)
EMPTY = '{"status":"success","data":{"resultType":"matrix","result":[]}}'


def heard(watch, by_s, events=(*START, *FAILURE)):
    state = State()
    for event in events:
        event = type(event)(
            **{**{name: getattr(event, name) for name in event.__struct_fields__}, "at_s": event.at_s + by_s}
        )
        decision = decide(state, event, POLICY)
        state = decision.state
        watch.hear(event, decision)


def watched(url, told):
    return DeviceWatch(url, JobClock(), lambda finding, words: told.append((finding, words)), delay_s=0.0)


def news(watch, told):
    watch.turn()
    return told


def test_each_incident_is_asked_about_once():
    asked, told = [], []

    def answer(handler):
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        asked.append(body.decode())
        text(EMPTY, kind="application/json")(handler)

    server = Played(answer)
    try:
        watch = watched(server.url, told)
        heard(watch, time.time() - 150.0)
        wait_for("news", lambda: news(watch, told))
        assert [finding for finding, _ in told] == ["device-metrics"]
        assert (
            "incident 1: Device metrics could not be read from Prometheus: it has no device metrics"
            in told[0][1]
        )
        assert any("n0" in body for body in asked)
        count = len(asked)
        heard(watch, time.time() - 150.0)
        watch.turn()
        assert len(asked) == count
    finally:
        server.end()


def test_an_old_record_is_not_asked_about():
    told = []
    watch = watched(f"http://127.0.0.1:{free_port()}", told)
    heard(watch, 0.0)
    watch.close()
    watch.turn()
    assert told == []


def test_a_prometheus_that_is_away_is_one_note():
    told = []
    watch = watched(f"http://127.0.0.1:{free_port()}", told)
    heard(watch, time.time() - 150.0)
    wait_for("news", lambda: news(watch, told))
    assert len(told) == 1
    assert "cannot be reached" in told[0][1]
    watch.close()

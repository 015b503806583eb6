"""Metrics of a whole run: served while it trains, fails and goes on; and what Prometheus knows beside its verdict."""

import re
from urllib.request import Request, urlopen

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open

from metrics.servers import Played, free_port, text
from run.place import wait_for

OPEN = "application/openmetrics-text;version=1.0.0"


def scraped(port):
    request = Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": OPEN})
    with urlopen(request, timeout=60) as answer:
        families = read_open(answer.read().decode())
        return {(one.name, *one.labels.values()): one for family in families for one in family.samples}


def value(port, *place):
    found = scraped(port).get(place)
    return found.value if found is not None else None


def test_a_run_that_fails_and_goes_on(place):
    port, file = free_port(), place.path / "holdfast.prom"
    flags = ("--metrics-address", f"127.0.0.1:{port}", "--metrics-textfile", file)
    run = place.ranks(2, "--max-restarts", "2", "--unconditional-restart", *flags)
    run.prints("step 3 ").says(f"metrics: http://127.0.0.1:{port}/metrics")
    wait_for("steps", lambda: (value(port, "holdfast_job_step", "t") or 0) >= 3)
    assert value(port, "holdfast_job_phase", "t", "running") == 1.0
    assert value(port, "holdfast_job_ranks", "t", "running") == 2.0
    assert value(port, "holdfast_job_attempts_total", "t") == 1.0
    assert value(port, "holdfast_incident_open", "t") == 0.0
    assert value(port, "holdfast_job_last_output_timestamp_seconds", "t") > 1e9
    place.kill_rank(1)
    place.given(1, 2)
    wait_for("training again", lambda: (value(port, "holdfast_recovery_seconds_count", "t") or 0) == 1.0)
    told = scraped(port)
    ((count, example),) = [
        (one.value, one.exemplar) for key, one in told.items() if key[0] == "holdfast_incidents_total"
    ]
    assert count == 1.0
    assert example.labels == {"incident": "1"}
    assert told["holdfast_job_restarts_total", "t", "restart"].value == 1.0
    assert told["holdfast_job_restarts_max", "t"].value == 2.0
    lost = {key[2:]: one.value for key, one in told.items() if key[0] == "holdfast_job_lost_seconds_total"}
    assert any(category == "process_killed" for category, _ in lost)
    assert 0.0 < told["holdfast_job_goodput_ratio", "t"].value < 1.0
    assert told["holdfast_process_resident_memory_bytes", "controller"].value > 1e6
    place.go()
    assert run.code() == 0
    last = file.read_text()
    assert 'holdfast_job_outcome{job_name="t",outcome="succeeded"} 1.0' in last
    assert re.search(
        r'holdfast_incidents_total\{job_name="t",category="process_killed",rung="[a-z-]+"\} 1.0', last
    )


def test_a_port_in_use_does_not_keep_the_training_from_its_end(place):
    server = Played(text(""))
    try:
        run = place.shell("echo done", "--metrics-address", f"127.0.0.1:{server.port}")
        assert run.code() == 0
        assert "metrics are not served at" in run.err
        assert "done" in run.out
    finally:
        server.end()


def test_an_address_that_is_none_is_refused(place):
    run = place.shell("true", "--metrics-address", "nonsense")
    assert run.code() == 2
    assert "--metrics-address cannot be 'nonsense'; allowed: HOST:PORT, or none" in run.err


def test_without_the_setting_nothing_listens(place):
    run = place.shell("true")
    assert run.code() == 0
    assert "metrics" not in run.err

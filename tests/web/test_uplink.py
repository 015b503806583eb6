"""A job that reports itself to a server from another state folder: seen there, stopped from there."""

import pytest

from run.place import Place as Runs
from run.place import wait_for
from web.servers import Place, Server, until

TRAINS = "import time\nfor n in range(10**6): print('step', n, flush=True); time.sleep(0.05)"


@pytest.fixture
def runs(tmp_path, cache_home):
    (tmp_path / "there").mkdir()
    one = Runs(tmp_path / "there", cache_home)
    yield one
    one.end()


def test_a_job_elsewhere_is_seen_asked_and_stopped(runs, tmp_path):
    place = Place(tmp_path / "here")
    server = Server(place.root)
    try:
        run = runs.start(
            *("run", "--job", "t", "--server", server.url, "--", "python3", "-S", "-c", TRAINS),
            HOLDFAST_SERVER_TOKEN=place.token("reporter"),
        )
        with server.client(place.token("operator")) as client:
            (row,) = until(lambda: client.jobs().jobs)
            until(lambda: (client.job(row.id).row.step or 0) > 5)
            until(lambda: any("step" in line.text for line in client.output(row.id).lines))
            assert client.exec(row.id, ["echo", "hello"]).groups[0].output == "hello\n"
            assert client.stop(row.id, reason="from afar").done
            run.code()
            until(lambda: client.job(row.id).row.state == "stopped")
        (asked,) = runs.events("stop-requested")
        assert asked["reason"] == "requested by the-operator@127.0.0.1: from afar"
    finally:
        server.stop()


def test_a_viewer_cannot_report(runs, tmp_path):
    place = Place(tmp_path / "here")
    server = Server(place.root)
    try:
        run = runs.start(
            *("run", "--job", "t", "--server", server.url, "--", "python3", "-S", "-c", TRAINS),
            HOLDFAST_SERVER_TOKEN=place.token("viewer"),
        )
        log = runs.job() / "uplink.log"
        wait_for("the refusal", lambda: log.exists() and "403" in log.read_text())
        with server.client(place.token("viewer")) as client:
            assert not client.jobs().jobs
        run.signal(15)
        run.code()
    finally:
        server.stop()

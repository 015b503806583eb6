"""Actions on real running jobs: asked over HTTP, decided by the job's controller, kept in journal and audit log."""

import json
import sys

import pytest
import websockets.sync.client as ws
from websockets.exceptions import InvalidStatus

from holdfast.client import Conflict, NotAllowed
from holdfast.journal.nodes.book import NodeBook
from run.place import wait_for
from web.servers import WAIT_S, Place, Server, until


@pytest.fixture
def server(runs):
    running = Server(runs.state)
    yield running
    running.stop()


@pytest.fixture
def client(server):
    with server.client() as one:
        yield one


TRAINS = "import time, sys\nfor n in range(10**6): print('step', n, flush=True); time.sleep(0.05)"
FAILS_ONCE = (
    "import os, time\n"
    "if os.environ['HOLDFAST_ATTEMPT'] == '1': time.sleep(0.3); raise ValueError('shard 19 is torn')\n"
    f"{TRAINS}"
)


def runs_in(runs, attempt, run):
    """The run, once this attempt is under way."""
    wait_for(
        lambda: f"attempt {attempt}:\n{run.err}",
        lambda: (
            (runs.job() / "journal.db").exists()
            and any(event["attempt"] == attempt for event in runs.events("attempt-started"))
        ),
    )
    return run


def audited(client, action):
    return [line.result for line in client.audit() if line.action == action]


def test_a_job_is_stopped_and_the_journal_says_who_asked(runs, client):
    run = runs_in(runs, 1, runs.python(TRAINS))
    done = client.stop("t", reason="enough")
    assert done.done and run.code() == 128 + 15
    (asked,) = runs.events("stop-requested")
    assert asked["reason"] == "requested by local@127.0.0.1: enough" and not asked["force"]
    assert until(lambda: client.job("t").row.state == "stopped")
    assert audited(client, "stop") == ["done", "asked"]
    with pytest.raises(Conflict, match="has ended"):
        client.stop("t")
    assert audited(client, "stop")[0] == "refused"


def test_a_stop_at_once_and_a_second_one(runs, client):
    stubborn = (
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(1000)"
    )
    run = runs_in(runs, 1, runs.python(stubborn, "--grace", "60s"))
    run.prints("ready")
    assert client.stop("t").done
    again = client.stop("t")
    assert not again.done and "already" in again.text
    assert client.stop("t", force=True).done
    run.code()


def test_a_restart_starts_the_next_attempt_and_costs_none(runs, client):
    run = runs_in(runs, 1, runs.python(TRAINS, "--max-restarts", "1"))
    assert client.restart("t", reason="new data").done
    runs_in(runs, 2, run)
    assert "local@127.0.0.1 asks for a restart: new data" in run.err
    document = until(lambda: (found := client.job("t")).row.attempt == 2 and found)
    assert document.counters.restarts == 0 and not document.incidents
    client.stop("t")
    run.code()


def test_a_command_runs_on_the_workers_and_is_in_the_journal(runs, client):
    run = runs_in(runs, 1, runs.python(TRAINS))
    result = client.exec("t", ["sh", "-c", "echo hello; echo oops >&2; exit 3"])
    (group,) = result.groups
    assert (group.workers, group.code, result.code) == ((0,), 3, 3)
    assert group.output.split() == ["hello", "oops"]
    noted = wait_for(
        "exec in the journal", lambda: [e for e in runs.events("finding-noted") if e["finding"] == "exec"]
    )
    assert "exec by local@127.0.0.1 on worker 0" in noted[0]["text"]
    with pytest.raises(Conflict, match="no worker 7"):
        client.exec("t", ["true"], workers=[7])
    client.stop("t", force=True)
    run.code()


def test_an_incident_is_acknowledged_and_corrected_while_it_runs_and_after_the_end(runs, client):
    run = runs_in(runs, 2, runs.python(FAILS_ONCE, "--max-restarts", "2", "--unconditional-restart"))
    until(lambda: client.job("t").incidents)
    assert client.acknowledge("t", 1, "looking").done
    done = client.correct("t", 1, "data_error", "the shard, not the code")
    assert "matches = [" in done.text and 'category = "data_error"' in done.text
    with pytest.raises(Conflict, match="no incident 9"):
        client.acknowledge("t", 9)
    client.stop("t", force=True)
    run.code()
    assert client.correct("t", 1, "storage_io", "it was the disk").done
    events = runs.events("verdict-corrected")
    assert [event["category"] for event in events] == ["data_error", "storage_io"]
    assert runs.events("incident-acknowledged")[0]["by"] == "local@127.0.0.1"


def test_a_category_that_is_none_is_refused_with_the_nearest(runs, client, server):
    runs.python("raise SystemExit(1)").code()
    with server.http(headers={"X-Holdfast-CSRF": client.me().csrf, "X-Holdfast-Confirm": "yes"}) as http:
        answer = http.post("api/v1/jobs/t/incidents/1/correct", json={"category": "data_eror", "text": ""})
    assert answer.status_code == 400 and "data_error" in answer.json()["error"]["near"]


def test_nodes_are_isolated_and_released(runs, client):
    assert client.isolate("gpu-3", "fan").done
    assert not client.isolate("gpu-3", "fan").done
    book = NodeBook(runs.state / "fleet")
    try:
        assert book.isolated()["gpu-3"].by == "local@127.0.0.1"
    finally:
        book.close()
    assert client.release("gpu-3", "new fan").done
    assert not client.release("gpu-3", "new fan").done


def test_a_shell_on_a_worker(runs, server, client):
    run = runs_in(runs, 1, runs.python(TRAINS))
    url = f"{server.url.replace('http', 'ws', 1)}api/v1/jobs/t/shell?worker=0&columns=90&rows=20"
    with ws.connect(url, open_timeout=WAIT_S, origin=server.url.rstrip("/")) as shell:
        shell.send(b"stty size; exit 7\n")
        seen, end = b"", None
        for message in shell:
            if isinstance(message, bytes):
                seen += message
            else:
                end = json.loads(message)
        assert b"20 90" in seen and end["ended"] == 7
    assert until(lambda: audited(client, "shell") == ["done", "asked"])
    client.stop("t", force=True)
    run.code()


def test_a_shell_is_for_operators_of_our_own_page(tmp_path):
    place = Place(tmp_path / "state")
    place.job("t")
    running = Server(place.root)
    url = f"{running.url.replace('http', 'ws', 1)}api/v1/jobs/t/shell?worker=0"
    ask = {
        401: {},
        403: {"Authorization": f"Bearer {place.token('viewer')}"},
    }
    try:
        for status, headers in ask.items():
            with pytest.raises(InvalidStatus) as refused:
                ws.connect(url, open_timeout=WAIT_S, additional_headers=headers)
            assert refused.value.response.status_code == status
        headers = {"Authorization": f"Bearer {place.token('operator')}"}
        with pytest.raises(InvalidStatus) as refused:
            ws.connect(url, open_timeout=WAIT_S, additional_headers=headers, origin="https://evil.example")
        assert refused.value.response.status_code == 403
        with running.client(place.token("viewer")) as client, pytest.raises(NotAllowed):
            client.exec("t", [sys.executable, "-V"])
    finally:
        running.stop()


def test_nothing_is_done_without_an_audit_log(runs, server, client):
    run = runs_in(runs, 1, runs.python(TRAINS))
    (runs.state / "server" / "audit.log").mkdir(parents=True)
    with server.http(headers={"X-Holdfast-CSRF": client.me().csrf, "X-Holdfast-Confirm": "yes"}) as http:
        answer = http.post("api/v1/jobs/t/stop", json={})
    assert answer.status_code == 503 and "the action was not carried out" in answer.text
    assert run.process.poll() is None
    (runs.state / "server" / "audit.log").rmdir()
    client.stop("t", force=True)
    run.code()

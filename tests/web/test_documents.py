"""Every route that reads, asked of a real server with the typed client."""

import asyncio
import json

import pytest

from cli.journals import (
    COMMAND,
    START_S,
    hang_then_lost_node_then_success,
    one_failure_and_on,
    started,
    submitted,
)
from holdfast.client import ApiError, AsyncClient, Client, NotThere
from holdfast.journal.nodes.book import NodeBook
from holdfast.model.events import AttemptStopped, WorkerExited
from holdfast.model.nodes.book import CheckLine, DeviceLine, Isolation
from web.servers import Server, until

JOBS = 12


def succeeded():
    return [
        submitted(),
        *started(START_S + 1, 1),
        WorkerExited(at_s=START_S + 9, attempt=1, worker=0, code=0),
        AttemptStopped(at_s=START_S + 10, attempt=1),
    ]


@pytest.fixture(scope="module")
def server(place):
    """A server of a few jobs, with one that has output, and of two nodes."""
    place.job("llama", one_failure_and_on())
    place.job("moved", hang_then_lost_node_then_success())
    for number in range(JOBS - 2):
        place.job(f"done-{number}", succeeded())
    folder = place.state.job("llama").worker(2, 0)
    folder.mkdir(parents=True)
    (folder / "stdout").write_text("".join(f"line {number} of the launcher\n" for number in range(1_000)))
    (folder / "rank-1.log").write_text("step 1\nCUDA out of memory\nstep 2\n")
    incidents = place.state.job("llama").incidents
    incidents.mkdir(exist_ok=True)
    (incidents / "incident-001.tar.zst").write_bytes(b"a bundle")
    book = NodeBook(place.root / "fleet")
    book.note(
        [
            (
                "c",
                CheckLine(
                    at_s=START_S, node="gpu-03", status="warn", check="gpu-ecc", text="two errors corrected"
                ),
            ),
            (
                "d",
                DeviceLine(at_s=START_S, node="gpu-03", serial="GPU-7f", model="H100", device="0000:5d:00.0"),
            ),
        ]
    )
    book.isolate(Isolation(node="gpu-07", since_s=START_S, reason="ECC errors", by="ana"))
    book.close()
    running = Server(place.root)
    try:
        with running.client() as client:
            until(lambda: client.jobs().total == JOBS)
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def client(server):
    with server.client() as one:
        yield one


def test_the_list_of_jobs_has_a_sentence_for_each(client):
    page = client.jobs()
    assert {row.id for row in page.jobs} >= {"llama", "moved", "done-0"}
    assert all(row.sentence.text.en and row.sentence.text.zh for row in page.jobs)
    assert sum(page.states.values()) == JOBS


def test_pages_of_jobs_follow_each_other_without_gap_or_repetition(client):
    names = [row.id for row in client.all_jobs(limit=5)]
    assert len(names) == len(set(names)) == JOBS


def test_jobs_are_filtered(client):
    succeeded = client.jobs(state=["succeeded"])
    assert {row.state for row in succeeded.jobs} == {"succeeded"} and succeeded.total == JOBS - 1
    assert [row.id for row in client.jobs(search="llama train", state=["unknown"]).jobs] == ["llama"]
    assert client.jobs(label=["team:vision"]).total == 0


def test_a_filter_that_cannot_be_is_refused_with_the_names_that_can(client, server):
    with server.http() as http:
        answer = http.get("api/v1/jobs", params={"stat": "failed"})
    assert answer.status_code == 400
    assert answer.json()["error"]["near"] == ["state"]


def test_a_job_whole(client):
    document = client.job("llama")
    assert document.row.incidents == 1 and document.counters.restarts == 1
    assert [attempt.number for attempt in document.attempts] == [1, 2]
    assert document.incidents[0].category == "gpu_oom"


def test_a_job_that_is_not_there_names_the_nearest(client):
    with pytest.raises(NotThere, match="no job lama") as refused:
        client.job("lama")
    assert refused.value.near[0] == "llama"


def test_an_incident_with_its_evidence(client):
    document = client.incident("llama", 1)
    assert document.row.who[0].rank == 2 and document.has_bundle
    first = next(row for row in document.evidence if row.first_error)
    assert client.evidence("llama", first.id) == first
    with pytest.raises(NotThere):
        client.incident("llama", 2)
    with pytest.raises(NotThere):
        client.evidence("llama", "1.99999")


def test_the_bundle_of_an_incident_is_a_file(client, server):
    assert client.bundle("llama", 1) == b"a bundle"
    with server.http() as http:
        answer = http.get("api/v1/jobs/llama/incidents/1/bundle")
    assert 'filename="llama-incident-1.tar.zst"' in answer.headers["content-disposition"]


def test_the_log_is_read_in_pages(client):
    whole = client.log("llama", limit=500)
    lines, after = [], 0
    while page := client.log("llama", after=after, limit=3).lines:
        lines += page
        after = page[-1].seq
    assert tuple(lines) == whole.lines
    assert {line.kind for line in client.log("llama", kind=["verdict"]).lines} == {"verdict"}


def test_output_at_its_end_around_a_place_and_by_pattern(client):
    files = {one.file: one for one in client.files("llama")}
    name = "attempt-002/worker-0/stdout"
    assert files[name].size_bytes > 0
    end = client.output("llama", file=name, limit=3)
    assert [line.text.split()[1] for line in end.lines] == ["997", "998", "999"]
    before = client.output("llama", file=name, limit=2, cursor=end.before)
    assert [line.text.split()[1] for line in before.lines] == ["995", "996"]
    around = client.output("llama", file=name, line=end.lines[0].place.offset, limit=5)
    assert "line 997" in {line.text[:8] for line in around.lines}
    found = client.output("llama", pattern="out of memory")
    assert [line.text for line in found.lines] == ["CUDA out of memory"]
    with pytest.raises(NotThere):
        client.output("llama", file="../../secret")
    with pytest.raises(ApiError, match="pattern|searched"):
        client.output("llama", pattern="(")


def test_a_node_lists_the_incidents_that_name_it(client):
    named = [row for row in client.nodes().nodes if row.incidents]
    assert named
    for row in named:
        links = client.node(row.node).incidents
        assert len(links) == row.incidents
        assert all(client.incident(one.job, one.incident).row.sentence == one.sentence for one in links)


def test_nodes_and_devices(client):
    node = client.node("gpu-07")
    assert node.row.isolated and "ECC errors" in node.row.isolated_for
    known = client.node("gpu-03")
    assert known.checks[0].check == "gpu-ecc" and known.devices[0].serial == "GPU-7f"
    assert client.device("GPU-7f").node == "gpu-03"
    for ask in (lambda: client.node("gpu-99"), lambda: client.device("none")):
        with pytest.raises(NotThere):
            ask()


def test_documents_that_have_not_changed_are_not_sent_again(server):
    with server.http() as http:
        for path in (
            "api/v1/jobs",
            "api/v1/jobs/moved",
            "api/v1/jobs/llama/incidents/1",
            "api/v1/nodes/gpu-03",
        ):
            first = http.get(path)
            again = http.get(path, headers={"If-None-Match": first.headers["etag"]})
            assert (first.status_code, again.status_code, again.content) == (200, 304, b""), path


def test_large_documents_are_compressed(server):
    with server.http(headers={"Accept-Encoding": "gzip"}) as http:
        assert http.get("api/v1/jobs").headers["content-encoding"] == "gzip"


def test_health_tells_strangers_nothing_but_that_it_answers(server, place):
    with server.client() as client:
        assert client.health().jobs == JOBS


def test_the_page_has_the_sentence_in_its_first_answer(server, client):
    with server.http() as http:
        page = http.get("jobs/llama", headers={"Accept-Language": "zh-CN,zh;q=0.9"})
        assert client.job("llama").row.sentence.text.zh in page.text and 'lang="zh-CN"' in page.text
        assert "<script>" not in page.text and "default-src 'none'" in page.headers["content-security-policy"]
        assert http.get("jobs/lama").status_code == 404


def test_the_client_for_asyncio_has_the_same_documents(server, client):
    async def ask():
        async with AsyncClient(server.url) as one:
            rows = [row.id async for row in one.all_jobs(limit=4)]
            return rows, await one.job("llama"), await one.health()

    rows, document, health = asyncio.run(ask())
    assert len(rows) == JOBS and document.row.name == "llama" and health.status == "ok"


def test_both_clients_have_the_same_methods():
    named = [
        {name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}
        for kind in (Client, AsyncClient)
    ]
    assert named[0] == named[1]


def test_the_documents_are_json_that_the_schema_knows(server):
    with server.http() as http:
        schema = http.get("openapi.json").json()
        row = http.get("api/v1/jobs").json()["jobs"][0]
    assert schema["openapi"].startswith("3.1")
    assert set(row) <= set(schema["components"]["schemas"]["JobRow"]["properties"])
    assert json.dumps(row)


def test_the_command_is_in_the_row(client):
    assert client.job("llama").row.command == " ".join(COMMAND)

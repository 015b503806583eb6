"""What people, programs and attackers send, and what disks do: the answer is a document, the text is text."""

import http.client
import json
import shutil
import socket
import sqlite3
import threading
from urllib.parse import quote

import pytest

from cli.journals import START_S, failure, started, submitted
from holdfast.client import ApiError, NotThere
from holdfast.journal.nodes.book import NodeBook
from holdfast.model.events import FindingNoted, VerdictReached
from holdfast.model.nodes.book import Isolation
from holdfast.model.verdicts import Evidence, Verdict
from web.servers import Place, Server, until

SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    SCRIPT,
    "</script><script>alert(1)</script>",
    "<!-- --><img src=x onerror=alert(1)>",
    "{{first}} {{7*7}} ${7*7}",
    "\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m",
    "\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "\u202eevil\u202c \u2066x\u2069 \u200b\ufeff",
    "\x00nul\x01\x02\x7f\x80\x9f",
    "a\r\nX-Injected: yes\r\n\r\nbody",
    "\N{PILE OF POO}" * 50 + "\u0300" * 100,
    "\ud800 lone surrogate".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    "'; DROP TABLE jobs; --",
    "%00%2e%2e%2f..\\..//etc/passwd",
    "javascript:alert(1)",
    "=cmd|' /C calc'!A0",
    "\u2028\u2029",
    "x" * 100_000,
)


TAGS = (
    "svg",
    "iframe",
    "object",
    "embed",
    "math",
    "style",
    "base",
    "link",
    "meta",
    "form",
    "video",
    "details",
)
HOSTILE += tuple(f"<{tag} src=javascript:alert(1) onload=alert(1) ontoggle=alert(1)>" for tag in TAGS)
HOSTILE += tuple(
    f"\x1b[{code}" for code in ("999999999A", "6n", "c", "?1049h", "38;2;999;999;999m", "1;1H\x1b[J")
)
HOSTILE += (
    "&lt;script&gt;alert(1)&lt;/script&gt; &#x3c;b&#x3e;",
    "]]><!ENTITY x SYSTEM 'file:///etc/passwd'>",
    "\\u003cscript\\u003e",
    "'\"`><\x00script>",
    "data:text/html;base64,PHNjcmlwdD4=",
    "../../../../etc/passwd\x00.log",
    "$(id) `id` ;id |id &&id",
    "%s%s%n%x {0.__class__}",
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe",
    "A\u0301" * 500,
    "\N{ZERO WIDTH JOINER}" * 200,
    "\t\v\f\x1c\x1d\x1e\x85",
    '{"error": {"code": "x"}}',
    "event: end\ndata: {}\n\n",
    "<a href='//evil.example'>log in again</a>",
)


@pytest.fixture(scope="module")
def server(place):
    for number, text in enumerate(HOSTILE):
        verdict = Verdict(
            category="gpu_oom",
            class_="memory",
            title=text[:500],
            confidence=0.9,
            action="reduce_memory",
            first_error=Evidence(text=text, file=text[:100], line=3, says=text[:100]),
        )
        events = [submitted(), *started(START_S + 1, 1, node="gpu-03"), *failure(START_S + 20, 1, 1)]
        events = [
            VerdictReached(at_s=one.at_s, incident=1, verdict=verdict, problem=text[:100])
            if isinstance(one, VerdictReached)
            else one
            for one in events
        ]
        note = FindingNoted(at_s=START_S + 2, finding="slowdown", text=text, attempt=1)
        place.job(f"hostile-{number}", [*events[:3], note, *events[3:]], command=("train", text[:2_000]))
        folder = place.state.job(f"hostile-{number}").worker(1, 0)
        folder.mkdir(parents=True)
        (folder / "rank-0.log").write_bytes(text.encode("utf-8", "surrogatepass") + b"\n\xff\xfe not utf-8\n")
    running = Server(place.root, "--rate", "10000")
    with running.client() as client:
        until(lambda: client.jobs().total == len(HOSTILE))
    yield running
    said = running.said()
    running.stop()
    assert "Traceback" not in said, said


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_text_comes_back_as_text(server, number):
    job = f"hostile-{number}"
    with server.http() as asked, server.client() as client:
        answers = [
            asked.get(f"{path}")
            for path in (
                f"api/v1/jobs/{job}",
                f"api/v1/jobs/{job}/incidents/1",
                f"api/v1/jobs/{job}/log",
                f"api/v1/jobs/{job}/output?rank=0",
                f"api/v1/jobs?search={job}",
            )
        ]
        for answer in answers:
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "x-injected" not in answer.headers
            json.loads(answer.content)
        page = asked.get(f"jobs/{job}/incidents/1")
        assert page.status_code == 200
        calm = asked.get("jobs/hostile-12/incidents/1")
        for tag in ("<script", "<img", "<a ", "<svg", "<iframe", "<meta", "<style", "<form"):
            assert page.text.count(tag) == calm.text.count(tag), tag
        assert client.job(job).row.id == job


def test_a_line_of_10_mb_is_cut_and_the_next_one_is_there(server, place):
    job = place.job("long-lines")
    folder = job.worker(2, 0)
    folder.mkdir(parents=True)
    (folder / "rank-0.log").write_bytes(b"first\n" + b"x" * 10_000_000 + b"\nlast\n")
    with server.client() as client:
        page = client.output("long-lines", rank=[0], limit=3)
        assert page.lines[-1].text == "last"
        assert sum(len(line.text) for line in page.lines) < 5_000_000
        assert any(line.cut_bytes for line in page.lines)


PATHS = (
    "/api/v1/jobs/..%2f..%2fetc",
    "/api/v1/jobs/../../../etc/passwd",
    "/api/v1/jobs/%2e%2e/%2e%2e",
    "/api/v1/jobs/.hidden",
    "/api/v1/jobs/a%00b",
    "/api/v1/jobs/a%0d%0aX-Injected:%20yes",
    "/api/v1/jobs/hostile-0/incidents/-1",
    "/api/v1/jobs/hostile-0/incidents/1e9",
    "/api/v1/jobs/hostile-0/incidents/9999999999999999999",
    "/api/v1/jobs/hostile-0/incidents/%D9%A3",
    "/api/v1/jobs/hostile-0/incidents/1/evidence/..",
    "/api/v1/nodes/%ff%fe",
    "/api/v1/devices/%00",
    "/assets/../../../etc/passwd",
    "/assets/x/..%2f..%2f..%2fpyproject.toml",
    "/assets/%2e%2e/%2e%2e/tokens.json",
    "//etc/passwd",
    "/api/v1/nothing",
    "/%c0%ae%c0%ae/",
)


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leaves_the_state_folder(server, path):
    status, headers, body = ask(server, path)
    assert 400 <= status < 500, (status, body)
    assert "root:" not in body and "x-injected" not in headers


FILES = (
    "/etc/passwd",
    "../../server/tokens.json",
    "attempt-002/../../../x",
    "journal.db",
    "secret",
    "attempt-001/worker-0/rank-0.log\x00",
)


@pytest.mark.parametrize("name", FILES)
def test_only_files_of_output_are_read(server, name):
    with server.client() as client, pytest.raises(ApiError) as refused:
        client.output("hostile-0", file=name)
    assert refused.value.status in (400, 404)


QUERIES = (
    "limit=0",
    "limit=1000000",
    "limit=x",
    "limit=1&limit=2",
    "since_s=nan",
    "since_s=-1",
    "since_s=1e400",
    "state=running",
    "cursor=%%%",
    "cursor=AAAA",
    "cursor=" + "A" * 4_097,
    "label=nocolon",
    "group=everything",
    "unknown=1",
    "search=" + "a" * 201,
    "&".join(f"label=a:{n}" for n in range(300)),
)


@pytest.mark.parametrize("query", QUERIES)
def test_queries_that_cannot_be_are_refused(server, query):
    status, _, body = ask(server, f"/api/v1/jobs?{query}")
    assert status == 400 and json.loads(body)["error"]["text"], body


BODIES = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'{"force": "yes"}',
    b'{"unknown": 1}',
    b'{"reason": "' + b"x" * 3_000 + b'"}',
    b"\xff\xfe",
    b"[" * 100_000,
    b"x" * (2 << 20),
)


@pytest.mark.parametrize("number", range(len(BODIES)))
def test_bodies_that_cannot_be_are_refused(server, number):
    with server.client() as client:
        csrf = client.me().csrf
    headers = {"Content-Type": "application/json", "X-Holdfast-Confirm": "yes", "X-Holdfast-CSRF": csrf}
    status, _, body = ask(server, "/api/v1/jobs/hostile-0/stop", "POST", headers, BODIES[number])
    expected = 409 if BODIES[number] == b"" else 413 if len(BODIES[number]) > 1 << 20 else 400
    assert status == expected, body


def test_a_form_is_no_json(server):
    with server.client() as client:
        csrf = client.me().csrf
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"Content-Type": kind, "X-Holdfast-Confirm": "yes", "X-Holdfast-CSRF": csrf}
        assert ask(server, "/api/v1/jobs/hostile-0/stop", "POST", headers, b"{}")[0] == 400


RAW = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzz\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x00" * 1_000,
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
)


@pytest.mark.parametrize("number", range(len(RAW)))
def test_what_is_no_request_is_refused(server, number):
    """The client keeps its side open: the server does not answer one that has closed it."""
    with socket.create_connection(server.address, timeout=60) as one:
        try:
            one.sendall(RAW[number])
            answer = one.recv(4_096)
        except (BrokenPipeError, ConnectionResetError):
            assert len(RAW[number]) > 50_000  # the server may refuse before it has read all
            return
    assert answer.split()[1] in (b"400", b"431", b"505"), answer[:200]


def test_a_request_that_does_not_go_on_is_cut_off(place):
    running = Server(place.root, "--rate", "1000")
    try:
        with socket.create_connection(running.address, timeout=60) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: local")
            assert slow.recv(100) == b""  # before its timeout
    finally:
        running.stop()


def test_a_damaged_and_a_deleted_journal(server, place):
    job = place.job("broken")
    other = place.job("deleted")
    with server.client() as client:
        until(lambda: {"broken", "deleted"} <= {row.id for row in client.jobs().jobs})
        job.journal_path.write_bytes(b"no database" * 1_000)
        for part in ("-wal", "-shm"):
            job.journal_path.with_name(f"journal.db{part}").unlink(missing_ok=True)
        shutil.rmtree(other.path)
        with pytest.raises(NotThere):
            client.job("deleted")
        until(lambda: "deleted" not in {row.id for row in client.jobs().jobs})
        try:
            assert client.job("broken").warnings
        except NotThere as refused:
            assert refused.status == 410 and "journal" in refused.text
        assert client.job("hostile-0").row.id == "hostile-0"


def test_two_servers_of_one_folder_tell_the_same(server, place):
    second = Server(place.root, "--rate", "1000")
    try:
        with server.client() as one, second.client() as two:
            until(lambda: [row.id for row in one.jobs().jobs] == [row.id for row in two.jobs().jobs])
            assert two.health().status == "ok"
    finally:
        second.stop()


def test_a_database_of_a_later_version_or_that_is_locked_costs_no_answer(tmp_path):
    place = Place(tmp_path)
    place.job("llama")
    (tmp_path / "server").mkdir()
    database = sqlite3.connect(tmp_path / "server" / "index.db")
    database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
    database.execute("INSERT INTO alembic_version VALUES ('9999')")
    database.commit()
    database.close()
    running = Server(tmp_path)
    try:
        with running.client() as client:
            until(lambda: client.jobs().total == 1)
            health = client.health()
            assert health.status == "degraded" and "newer Holdfast" in " ".join(health.warnings)
            assert client.job("llama").row.id == "llama"
    finally:
        running.stop()


def test_many_at_once_are_all_answered(server):
    wrong = []

    def ask_many():
        with server.client() as client:
            for number in range(10):
                try:
                    client.job(f"hostile-{number}")
                except ApiError as error:
                    wrong.append(error)

    threads = [threading.Thread(target=ask_many) for _ in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_names_and_reasons_of_nodes_are_text(server, place):
    names = ("<b>gpu</b>".replace("/", "-"), "gpu';DROP--", "\N{SNOWMAN}")
    book = NodeBook(place.root / "fleet")
    for name in names:
        book.isolate(Isolation(node=name, since_s=START_S, reason=SCRIPT, by="ana"))
    book.close()
    with server.client() as client, server.http() as http:
        for name in names:
            assert SCRIPT in client.node(name).row.isolated_for
            assert SCRIPT not in http.get(f"nodes/{quote(name)}").text


def ask(server, path, method="GET", headers=None, body=None):
    """As it is: no library tidies the path up. Status, headers, text."""
    connection = http.client.HTTPConnection(*server.address, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", "localhost")
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        if body is not None:
            try:
                connection.send(body)
            except (BrokenPipeError, ConnectionResetError):
                pass
        answer = connection.getresponse()
        return (
            answer.status,
            {key.lower(): value for key, value in answer.getheaders()},
            answer.read().decode("utf-8", "replace"),
        )
    finally:
        connection.close()

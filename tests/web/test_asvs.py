"""Requirements of OWASP ASVS that hold for every route, and those about code: docs/security.md names these tests."""

import ast
import base64
from pathlib import Path

import pytest
import websockets

import holdfast
from holdfast.model.documents.actions import Body
from holdfast.web.access.headers import SECURITY
from holdfast.web.api.queries import Query
from holdfast.web.api.route_table import PREFIX, ROUTES
from web.servers import Place, Server

SOURCE = Path(holdfast.__file__).parent
# The rooms that handle what comes over the network.
ROOMS = ("web", "archive", "uplink", "client", "jobs", "link", "notify", "mcp", "metrics")
FORBIDDEN = {"pickle", "marshal", "shelve", "dill", "yaml", "xmlrpc", "xml"}
EXECUTES = {"eval", "exec", "compile", "__import__"}
BITS_MIN = 256
PARTS = {"job": "llama", "number": "1", "evidence": "1.1", "node": "n0", "serial": "GPU-1"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    found = Place(tmp_path_factory.mktemp("state"))
    found.job("llama")
    return found


@pytest.fixture(scope="module")
def server(place):
    running = Server(place.root, "--rate", "100000")
    running.admin = place.token("admin")
    yield running
    running.stop()


def bits(text):
    return len(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))) * 8


def test_tokens_and_sessions_have_256_random_bits(place, server):
    secrets = [place.tokens.create(f"t{number}", "viewer", 1e9, 1e9) for number in range(50)]
    assert len(set(secrets)) == 50
    assert all(bits(secret.removeprefix("holdfast_")) >= BITS_MIN for secret in secrets)
    cookies = []
    for _ in range(5):
        with server.http() as http:
            answer = http.post("api/v1/login", json={"token": server.admin})
            assert answer.status_code == 200
            cookies += [cookie.value for cookie in http.cookies.jar]
    assert len(set(cookies)) == 5 and all(bits(cookie) >= BITS_MIN for cookie in cookies)


def test_nothing_from_outside_becomes_code_or_objects_of_any_kind():
    """By the source: no module that could make objects of bytes, and no call that runs text."""
    found = []
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found += [f"{path}: {name}" for name in names if name.partition(".")[0] in FORBIDDEN]
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in EXECUTES
                ):
                    found.append(f"{path}:{node.lineno}: {node.func.id}")
    assert found == []


def test_every_query_and_body_has_known_fields_only():
    """But for Alertmanager's, which adds fields from version to version."""
    kinds = [route.query for route in ROUTES] + [route.body for route in ROUTES if route.body is not None]
    assert all(issubclass(kind, Query | Body) for kind in kinds)
    open_ = {kind.__name__ for kind in kinds if not kind.__struct_config__.forbid_unknown_fields}
    assert open_ == {"AlertWebhook"}


def address(route):
    return (PREFIX + route.path).format(**PARTS).lstrip("/")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_answer_has_the_headers_of_security_and_of_caches(server, route):
    headers = {"Content-Type": "application/json"} if route.method == "POST" else {}
    with (
        server.http(server.admin) as http,
        http.stream(
            route.method, address(route), headers=headers, content=b"{}" if route.method == "POST" else None
        ) as answer,
    ):
        for name, value in SECURITY:
            assert answer.headers[name.decode()] == value.decode()
        kept = answer.headers["cache-control"].replace(" ", "").split(",")
        assert "no-store" in kept or {"private", "no-cache"} <= set(kept)
        assert "server" not in answer.headers and "x-powered-by" not in answer.headers
        assert answer.headers["content-type"].partition(";")[0] in (
            "application/json",
            "text/markdown",
            "application/zstd",
            "text/event-stream",
        )


@pytest.mark.parametrize(
    "path", ["", "login", "jobs/llama", "metrics", "openapi.json", "nowhere", "assets/x/nothing.js"]
)
def test_pages_files_and_errors_have_the_headers_of_security(server, path):
    with server.http(server.admin) as http:
        answer = http.get(path)
    for name, value in SECURITY:
        assert answer.headers[name.decode()] == value.decode(), (path, name)
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers.get("access-control-allow-origin") is None


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE"])
def test_other_methods_are_refused(server, route, method):
    with server.http(server.admin) as http:
        assert http.request(method, address(route)).status_code == 405


def test_there_is_no_debug_mode(server):
    """No page of a framework, no trace: the error of a path that does not exist and of a body that is none."""
    with server.http(server.admin) as http:
        answers = [
            http.get("api/v1/nothing"),
            http.get("docs"),
            http.get("debug"),
            http.post("api/v1/jobs/llama/stop", content=b"{", headers={"Content-Type": "application/json"}),
        ]
    for answer in answers:
        assert answer.status_code in (400, 404)
        assert "Traceback" not in answer.text and "starlette" not in answer.text.lower()
        assert set(answer.json()) == {"error"}


@pytest.mark.parametrize(
    "body", [b"\xff\xfe{}", '{"reason": "x"}'.encode("utf-16"), b'{"reason": "\xed\xa0\x80"}']
)
def test_json_has_one_encoding(server, body):
    with server.http(server.admin) as http:
        headers = {"Content-Type": "application/json", "X-Holdfast-Confirm": "yes"}
        answer = http.post("api/v1/jobs/llama/restart", content=body, headers=headers)
    assert answer.status_code == 400 and "is invalid" in answer.text


def test_the_version_is_in_the_health_document_only(server):
    with server.http() as http:
        assert http.get("api/v1/health").json()["version"] == holdfast.__version__
        told = [http.get(path) for path in ("login", "api/v1/jobs", "nowhere")]
    for answer in told:
        assert holdfast.__version__ not in str(answer.headers)
        assert "uvicorn" not in (answer.text + str(answer.headers)).lower()
    assert websockets.__version__ not in str([answer.headers for answer in told])

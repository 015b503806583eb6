"""Serves the page and documents made for its tests, on loopback; remembers the actions that are asked for.

`python tests/web/page/server.py [PORT]` (with tests and src on the path) shows it to a person. The real server has
tests of its own: here every state, every answer and every hostile text can be had at once.
"""

import base64
import hashlib
import json
import queue
import re
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from holdfast.model.documents.jobs import IncidentRow, JobsPage, LogPage
from holdfast.model.documents.output import OutputPage
from holdfast.model.documents.parts import Who
from holdfast.views.page import assets
from holdfast.views.page.shell import First, Shell, shell_html
from web.page import documents, incidents
from web.page.hostile import HOSTILE

Query = dict[str, list[str]]
# As the real server's: nothing inline, nothing from elsewhere, no script address that the page's own policy has not seen.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types holdfast"
)
ROOT = "/sub"  # every address is below a sub-path, as behind a proxy
LOG_LINES = 28
WAIT_S = 60.0  # a guard


class World:
    """What the server shows. Tests change it and call `tell`."""

    def __init__(self, now_s: float) -> None:
        self.set_time(now_s)
        self.role = "operator"
        self.locked = False
        self.asked: list[tuple[str, dict]] = []
        self.streams: list[queue.Queue] = []
        self.typed = b""
        self.deaf = False  # events are refused, as by a proxy without its server
        self.sent = 0
        self.resumed: list[str] = []
        self._changed = threading.Condition()
        self._numbers = iter(range(1, 1_000_000))

    def set_time(self, now_s: float) -> None:
        """All documents are then those of this moment."""
        self.now_s = now_s
        self.rows = documents.all_rows(now_s)

    def tell(self, kind: str, data: dict) -> None:
        for stream in list(self.streams):
            stream.put((next(self._numbers), kind, data))

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, WAIT_S), "the page did not do it"

    def wait_for_stream(self) -> None:
        self.wait_until(lambda: bool(self.streams))

    def changed(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def hang_up(self) -> None:
        for stream in list(self.streams):
            stream.put(None)

    # Documents

    def jobs(self, query: Query, *_: str) -> object:
        rows = self.rows
        if "empty" in query.get("search", []):
            return JobsPage(jobs=(), states={}, as_of_s=self.now_s)
        return documents.jobs_page(rows, self.now_s, query.get("state", []), _one(query, "search"), int(_one(query, "limit", "100")), int(_one(query, "cursor", "0")))  # fmt: skip

    def job(self, query: Query, id: str) -> object:
        row = next((row for row in self.rows if row.id == id), None)
        return None if row is None else documents.job_document(row, self.now_s)

    def incident(self, query: Query, id: str, number: str) -> object:
        if id.startswith("hostile-"):
            text = HOSTILE[int(id.removeprefix("hostile-"))]
            row = IncidentRow(
                number=1, attempt=1, found_at_s=self.now_s, sentence=documents.sentence(text, text, "lost", True), category=text[:60], class_=text[:20],
                who=(Who(rank=1, node=text[:60], device=text[:40]),), rung=text[:40], acknowledged_by=text[:40],
            )  # fmt: skip
            return incidents.hostile_incident(id, row, text)
        row = next((row for row in documents.incident_rows(self.now_s) if row.number == int(number)), None)
        return None if row is None else incidents.incident_document(id, row, self.now_s)

    def markdown(self, query: Query, id: str, number: str) -> object:
        return f"**{id} incident {number}** ({_one(query, 'lang')})\n".encode()

    def log(self, query: Query, id: str) -> object:
        return LogPage(lines=documents.log_lines(self.now_s)[:LOG_LINES], next=LOG_LINES, live=True)

    def steps(self, query: Query, id: str) -> object:
        low, high = _one(query, "from_s"), _one(query, "to_s")
        total = 0 if id == "vit-huge" else 41_877
        return incidents.step_series(self.now_s, total, float(low) if low else None, float(high) if high else None, int(_one(query, "points", "600")))  # fmt: skip

    def heat(self, query: Query, id: str) -> object:
        return incidents.heat_map(self.now_s, int(_one(query, "columns", "200")))

    def output(self, query: Query, id: str) -> object:
        limit, total = int(_one(query, "limit", "200")), incidents.LINES_OF_RANK
        ranks = [int(rank) for rank in query.get("rank", []) if rank] or [0, 5]
        if file := _one(query, "file"):
            ranks = [int(re.sub(r"\D+", "", file.rpartition("/")[2]) or 0)]
        if pattern := _one(query, "pattern"):
            start = int(_one(query, "cursor", "1"))
            found = [
                line
                for n in range(start, min(start + 30_000, total))
                for line in [incidents.output_line(ranks[0], n, self.now_s)]
                if re.search(pattern, line.text)
            ]
            return OutputPage(lines=tuple(found[:limit]), after=str(start + 30_000) if start + 30_000 < total else "", scanned_bytes=(start + 30_000) * incidents.LINE_BYTES, size_bytes=total * incidents.LINE_BYTES)  # fmt: skip
        start = total - limit // len(ranks) + 1
        if at_s := _one(query, "at_s"):
            start = total - int((self.now_s - float(at_s)) / 0.5) - limit // 2
        if line := _one(query, "line"):
            start = int(line) // incidents.LINE_BYTES - limit // 2
        return incidents.output_page(ranks, self.now_s, int(_one(query, "cursor") or start), limit)

    def nodes(self, query: Query) -> object:
        return incidents.nodes_page(self.now_s, _one(query, "search"))

    def node(self, query: Query, name: str) -> object:
        return incidents.node_document(name, self.now_s)

    def device(self, query: Query, serial: str) -> object:
        found = incidents.node_document("gpu-03", self.now_s)
        return next((device for device in found.devices if device.serial == serial), None) if found else None

    def me(self, query: Query) -> object:
        return {"name": "mueller", "role": self.role, "by": "cookie", "csrf": "secret"}


def _one(query: Query, name: str, default: str = "") -> str:
    return query.get(name, [default])[0]


ROUTES: tuple[tuple[str, Callable], ...] = (
    (r"/jobs", World.jobs), (r"/jobs/([^/]+)", World.job), (r"/jobs/([^/]+)/incidents/(\d+)", World.incident),
    (r"/jobs/([^/]+)/incidents/(\d+)/markdown", World.markdown), (r"/jobs/([^/]+)/log", World.log), (r"/jobs/([^/]+)/steps", World.steps),
    (r"/jobs/([^/]+)/heat", World.heat), (r"/jobs/([^/]+)/output", World.output), (r"/nodes", World.nodes), (r"/nodes/([^/]+)", World.node),
    (r"/devices/([^/]+)", World.device), (r"/me", World.me),
)  # fmt: skip
EXEC = {
    "job": "llama-70b", "attempt": 3, "code": 1,
    "groups": [
        {"workers": [2], "nodes": ["gpu-03"], "outcome": "ended", "code": 1, "output": "GPU 5: \x1b[31mnot found\x1b[0m\n"},
        {"workers": [0, 1, 3, 4, 5, 6, 7], "nodes": [f"gpu-{n:02}" for n in range(7)], "outcome": "ended", "code": 0, "output": "8 GPUs\n" + HOSTILE[0]},
    ],
}  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "PageServer"
    world: World  # of this request

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.world = self.server.world_of(self.headers["Cookie"])
        parts = urlsplit(self.path)
        path, query = parts.path.removeprefix(ROOT), parse_qs(parts.query)
        if path.startswith("/assets/"):
            self._asset(path.removeprefix("/assets/1/"))
        elif path == "/api/v1/events":
            self._events()
        elif path.startswith("/api/v1/") and path.endswith("/shell"):
            self._shell()
        elif path.startswith("/api/v1/"):
            self._document(path.removeprefix("/api/v1"), query)
        else:
            self._page(path, parts.query)

    def _answer(self, status: int, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if status != 304:
            self.wfile.write(body)

    def _error(self, status: int, code: str, text: str, near: tuple[str, ...] = ()) -> None:
        body = msgspec.json.encode({"error": {"code": code, "text": text, "near": near}})
        self._answer(status, body, "application/json")

    def _asset(self, name: str) -> None:
        text = {"app.js": assets.script, "app.css": assets.style, "terminal.js": assets.terminal_script}.get(
            name
        )
        body = text() if text else assets.text(assets.ON_DEMAND[name])
        self._answer(
            200,
            body.encode(),
            "text/css" if name.endswith(".css") else "text/javascript",
            Cache_Control="max-age=600",
        )

    def _page(self, path: str, query: str) -> None:
        job = re.fullmatch(r"/jobs/([^/]+)", path)
        document = self.world.job({}, unquote(job[1])) if job and not self.world.locked else None
        first = First(base=ROOT, assets=ROOT + "/assets/1", path=path if document else "", document=document)
        sentence = document.row.sentence.text if document else None
        shell = Shell(title="Holdfast", sentence=sentence, first=first)
        self._answer(
            200, shell_html(shell).encode(), "text/html; charset=utf-8", Content_Security_Policy=POLICY
        )

    def _document(self, path: str, query: Query) -> None:
        if self.world.locked and path != "/me":
            return self._error(401, "unauthorised", "Log in with a token.")
        for shape, call in ROUTES:
            if found := re.fullmatch(shape, path):
                document = call(self.world, query, *map(unquote, found.groups()))
                if document is None:
                    return self._error(404, "not-found", f"There is nothing at {path}.", ("llama-70b",))
                if isinstance(document, bytes):
                    return self._answer(200, document, "text/markdown")
                body = msgspec.json.encode(document)
                etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
                return self._answer(
                    304 if self.headers["If-None-Match"] == etag else 200, body, "application/json", ETag=etag
                )
        return self._error(404, "not-found", f"There is nothing at {path}.")

    def _events(self) -> None:
        if self.world.deaf:
            return self._error(503, "busy", "The server is being restarted.")
        stream: queue.Queue = queue.Queue()
        self.world.streams.append(stream)
        query = parse_qs(urlsplit(self.path).query)
        self.world.resumed.append(self.headers["Last-Event-ID"] or _one(query, "last_event_id"))
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            self.wfile.write(b"retry: 300\nevent: beat\ndata: {}\n\n")
            self.world.changed()
            while (message := stream.get()) is not None:
                number, kind, data = message
                self.wfile.write(f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode())
                self.world.sent = number
                self.world.changed()
        except OSError:
            pass  # the page has left
        finally:
            self.world.streams.remove(stream)

    def do_POST(self) -> None:
        self.world = self.server.world_of(self.headers["Cookie"])
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        path = urlsplit(self.path).path.removeprefix(ROOT + "/api/v1")
        self.world.asked.append((path, body))
        if self.headers["X-Holdfast-Confirm"] != "yes":
            return self._error(400, "not-confirmed", "The action was not confirmed.")
        if path == "/login":
            if body["token"] != "right":
                return self._error(401, "unauthorised", "This token is not known, or it has expired.")
            self.world.locked = False
        elif path.endswith("/release"):
            return self._error(409, "conflict", "gpu-03 is not isolated any more.")
        elif path.endswith("/exec"):
            return self._answer(200, json.dumps(EXEC).encode(), "application/json")
        text = "Done by mueller; the journal says so."
        if path.endswith("/correct"):
            text += "\n[[signature.matches]]\nline = '''NVRM: Xid (PCI:0000:5d:00): 79'''"
        return self._answer(200, json.dumps({"done": True, "text": text}).encode(), "application/json")

    # A shell that repeats what is typed; "exit" ends it. source: RFC 6455

    def _shell(self) -> None:
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        for name, value in {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": accept,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        self._frame(2, b"worker 0 \x1b[38;2;200;40;40m$\x1b[0m ")
        while (frame := self._read()) is not None:
            kind, data = frame
            if kind == 8:
                return
            if kind == 2:
                self.world.typed += data
                self._frame(2, data.replace(b"\r", b"\r\n"))
                if self.world.typed.endswith(b"exit\r"):
                    self._frame(1, json.dumps({"ended": 0, "text": ""}).encode())

    def _frame(self, kind: int, data: bytes) -> None:
        assert len(data) < 126
        self.wfile.write(bytes([0x80 | kind, len(data)]) + data)

    def _read(self) -> tuple[int, bytes] | None:
        head = self.rfile.read(2)
        if len(head) < 2:
            return None
        size = head[1] & 0x7F
        assert size < 126, "the tests type little"
        mask = self.rfile.read(4)
        return head[0] & 0x0F, bytes(byte ^ mask[n % 4] for n, byte in enumerate(self.rfile.read(size)))


class PageServer(ThreadingHTTPServer):
    """Serves until it is closed. `address`: of the list of jobs.

    A page with `cookie` sees `world`, the newest one, also when there are newer ones: a late request of an earlier test
    does not count as one of the next.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self._worlds: list[World] = []
        self.begin()
        super().__init__(("127.0.0.1", port), Handler)
        self.address = f"http://127.0.0.1:{self.server_address[1]}{ROOT}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def begin(self) -> None:
        """Makes a new world."""
        self.world = World(time.time())
        self._worlds.append(self.world)

    @property
    def cookie(self) -> str:
        return f"world-{len(self._worlds)}"

    def world_of(self, cookies: str | None) -> World:
        found = re.search(r"\bworld-(\d+)=", cookies or "")
        return self._worlds[int(found[1]) - 1] if found else self.world

    def close(self) -> None:
        self.world.hang_up()
        self.shutdown()
        self._thread.join()
        self.server_close()


if __name__ == "__main__":
    server = PageServer(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
    sys.stdout.write(server.address + "/\n")

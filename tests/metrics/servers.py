"""Real Prometheus, Alertmanager and node-exporter on loopback, and small HTTP servers that play an exporter or a broken one."""

import contextlib
import http.client
import http.server
import json
import random
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from holdfast.metrics.prometheus import Prometheus
from run.place import wait_for

READY_S = 200.0  # a guard, for a busy machine


def free_port() -> int:
    """A port for a program that cannot choose one itself.

    Below those that the kernel hands out, so that no connection of another test gets it before the program is up.
    """
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def get(port: int, path: str, accept: str = "") -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Accept": accept} if accept else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace"), dict(answer.headers)


class Tool:
    """A server of the system, started by a test and ended with it."""

    def __init__(self, words: list[str], port: int, ready: str, log: Path) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(words, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        wait_for(f"{words[0]} is ready", lambda: self._is_ready(ready), READY_S)

    def _is_ready(self, path: str) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            return get(self.port, path)[0] == 200
        except OSError:
            return False

    def reload(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("POST", "/-/reload")
            assert connection.getresponse().status == 200

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(200)


def prometheus(
    folder: Path, targets: list[int], *, rules: str = "", alertmanager: int | None = None, token: str = ""
) -> Tool:
    """Scrapes these ports each second. `rules`: a pattern of rule files. `token`: sent to the targets."""
    config: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [
            {"job_name": "played", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in targets]}]}
        ],
        "rule_files": [rules] if rules else [],
    }
    if token:
        (folder / "token").write_text(token)
        config["scrape_configs"][0]["authorization"] = {"credentials_file": str(folder / "token")}
    if alertmanager is not None:
        config["alerting"] = {
            "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
        }
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(json.dumps(config))
    words = [
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        "--storage.tsdb.retention.time=10y",
        "--storage.tsdb.allow-overlapping-blocks",
    ]
    return Tool(words, port, "/-/ready", folder / "prometheus.log")


def with_history(folder: Path, text: str) -> None:
    """Puts OpenMetrics text with times into the data of a Prometheus that is started in this folder later."""
    file = folder / "history.txt"
    file.write_text(text)
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(folder / "tsdb")],
        check=True,
        capture_output=True,
    )


def alertmanager(folder: Path, webhook: str, token: str = "") -> Tool:
    """Sends all alerts, at once, to this URL, with the token of a file."""
    receiver: dict[str, object] = {"url": webhook, "send_resolved": True}
    if token:
        (folder / "token").write_text(token)
        receiver["http_config"] = {"authorization": {"credentials_file": str(folder / "token")}}
    config = {
        "route": {
            "receiver": "it",
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "1h",
            "group_by": ["..."],
        },
        "receivers": [{"name": "it", "webhook_configs": [receiver]}],
    }
    file, port = folder / "alertmanager.yml", free_port()
    file.write_text(json.dumps(config))
    words = [
        "prometheus-alertmanager",
        f"--config.file={file}",
        f"--storage.path={folder / 'alerts'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    return Tool(words, port, "/-/ready", folder / "alertmanager.log")


def node_exporter(folder: Path) -> Tool:
    """Reads the text files of this folder, and nothing else."""
    port = free_port()
    words = [
        "prometheus-node-exporter",
        f"--web.listen-address=127.0.0.1:{port}",
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={folder}",
    ]
    return Tool(words, port, "/metrics", folder / "node-exporter.log")


class Played:
    """An HTTP server of ours. `answer`: takes the handler, does what it likes with it."""

    def __init__(self, answer) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                with contextlib.suppress(OSError):  # who asked has gone
                    answer(self)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def text(body: str, status: int = 200, kind: str = "text/plain; version=0.0.4"):
    """Answers with this text, whatever is asked."""

    def answer(handler) -> None:
        content = body.encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def wait_for_series(url: str, query: str, count: int = 1) -> None:
    def is_there() -> bool:
        return len(Prometheus(url).now(query)) >= count

    wait_for(f"{count} series of {query}", is_there, READY_S)

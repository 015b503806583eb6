"""Measures how soon the page is readable in Chromium, with the data of a large fleet, and prints a table.

    python -m bench.page.paint                                10,000 jobs, 2,000 nodes, 5,000,000 events
    python -m bench.page.paint --jobs 500 --events 100000     smaller
    python -m bench.page.paint --data DIR                     keeps the data there, or uses what is there

Each load is one of a browser without a cache. First paint: the browser's own first-contentful-paint. Cause: the frame after
the one in which the sentence that names the cause is in the document. Both count from the start of the navigation. The
reference is an empty page of a plain HTTP server, loaded in turns with the others.
"""

import http.server
import shutil
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from bench.page.data import fleet_parser, kept_fleet, wait_for_index
from web.page.chrome import FLAGS
from web.servers import Server

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SEEN_MS_MAX = 30_000
SIZES = {"1440": (1440, 900), "390": (390, 844)}
# Notes the first frame after the text is there. The page's policy allows no script but this, which the browser adds.
WATCH = """
const look = () => {
  const found = document.querySelector(SELECTOR);
  if (found && found.textContent.trim()) requestAnimationFrame(() => { globalThis.__seen = performance.now(); });
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
PAINTED = """
new Promise((done) => {
  const look = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    if (paint && globalThis.__seen) done([paint.startTime, globalThis.__seen]);
    else setTimeout(look, 5);
  };
  look();
})
"""


def main() -> None:
    parser = fleet_parser(__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("no Chromium is installed: make browser")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        root = asked.data or Path(temporary)
        kept_fleet(root, asked)
        server, reference = Server(root, "--rate", "100000"), Reference()
        try:
            measure(server, reference, browser, asked.jobs, asked.rounds)
        finally:
            reference.end()
            server.stop()


class Reference:
    """A plain HTTP server with one short page."""

    def __init__(self) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>empty</title><p>empty</p>")

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing: requests are not errors."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def measure(server: Server, reference: Reference, path: str, jobs: int, rounds: int) -> None:
    views = {"empty page (reference)": (reference.url, "p")}
    with server.client(timeout_s=60.0) as client:
        wait_for_index(client, jobs)
        failed = client.jobs(state=["failed"], limit=1).jobs[0]
        number = client.job(failed.id).incidents[-1].number
    views |= {
        "jobs": (server.url, ".jobs .sentence"),
        "failed jobs": (f"{server.url}?state=failed", ".jobs .sentence"),
        "job": (f"{server.url}jobs/{failed.id}", "main h1"),
        "incident": (f"{server.url}jobs/{failed.id}/incidents/{number}", "main h1"),
    }
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for turn in range(rounds + 1):
            for size in SIZES:
                for name, (url, selector) in views.items():
                    times = load(browser, url, selector, size)
                    if turn:  # the first one warms the server and the browser's code
                        found.setdefault((name, size), []).append(times)
        browser.close()
    report(found)


def load(browser: Browser, url: str, selector: str, size: str) -> tuple[float, float]:
    """First paint and the text readable, in seconds since the start of the navigation."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-US")
    try:
        page = context.new_page()
        page.set_default_timeout(SEEN_MS_MAX)
        page.add_init_script(WATCH.replace("SELECTOR", repr(selector)))
        page.goto(url, wait_until="commit")
        paint_ms, seen_ms = page.evaluate(PAINTED)
    finally:
        context.close()
    return paint_ms / 1e3, seen_ms / 1e3


def report(found: dict[tuple[str, str], list[tuple[float, float]]]) -> None:
    print(
        f"{'view':<24} {'width':>5} {'loads':>5} {'first paint: median':>20} {'p95':>8} {'cause: median':>14} {'p95':>8}"
    )
    for (name, size), times in found.items():
        paint, seen = (sorted(column) for column in zip(*times, strict=True))
        numbers = [statistics.median(paint), _p95(paint), statistics.median(seen), _p95(seen)]
        words = [f"{one * 1e3:.0f} ms" for one in numbers]
        print(
            f"{name:<24} {size:>5} {len(times):>5} {words[0]:>20} {words[1]:>8} {words[2]:>14} {words[3]:>8}"
        )


def _p95(times: list[float]) -> float:
    return times[min(len(times) - 1, int(len(times) * 0.95))]


if __name__ == "__main__":
    main()

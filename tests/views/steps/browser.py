"""A real browser for the tests of pages: Chromium without a window, spoken to over a pipe.

source: Chrome DevTools Protocol; --remote-debugging-pipe reads requests from file descriptor 3 and writes answers
to 4, JSON, each ended by a NUL.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

# The headless shell first: it has no windows, which cost a browser most of its CPU.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
NEEDED = "needs Chromium: make browser"
ANSWER_S = 100.0
# Without a sandbox, for CI runs as root; without anything that would ask the network.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--force-device-scale-factor=1", "--remote-debugging-pipe",
)  # fmt: skip


def _far_pipe():
    """A pipe whose numbers are not among those that the browser is to have."""
    ends = os.pipe()
    far = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return far


def browser_path():
    """None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in one browser. `problems`: what the page's console said and what it threw."""

    def __init__(self, path):
        self._home = tempfile.TemporaryDirectory(prefix="holdfast-browser-")
        to_read, self._to = _far_pipe()
        self._from, to_write = _far_pipe()
        # The shell gives it the numbers that it wants.
        script = f'exec "$@" 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", path, *FLAGS, f"--user-data-dir={self._home.name}", "about:blank"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self.problems = []
        self.requests = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        """The answer; what is said meanwhile is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        until_s = time.monotonic() + ANSWER_S
        while True:
            answer = self._next(until_s)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def _next(self, until_s):
        while b"\0" not in self._buffer:
            left_s = until_s - time.monotonic()
            assert left_s > 0 and select.select([self._from], [], [], left_s)[0], (
                "the browser does not answer"
            )
            piece = os.read(self._from, 1 << 20)
            assert piece, "the browser is gone"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, message):
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled":
                self.problems.append(json.dumps(params)[:2000])
            case "Log.entryAdded":
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def open(self, path, *, width=1200, height=900, dark=False):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width, height)
        self.problems.clear()
        self.requests.clear()
        self.ask("Page.navigate", url=path.as_uri())
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(path.as_uri())}")

    def resize(self, width, height):
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def run(self, script):
        """The value of a JavaScript expression, after the page has drawn itself."""
        told = self.ask(
            "Runtime.evaluate", expression=f"new Promise(done => requestAnimationFrame(() => done({script})))",
            awaitPromise=True, returnByValue=True,
        )  # fmt: skip
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def wait(self, script):
        """Until the expression is true: of what the browser does in its own time."""
        until_s = time.monotonic() + ANSWER_S
        while not self.run(script):
            assert time.monotonic() < until_s, f"not true: {script}"

    def text(self, element):
        return self.run(f"document.getElementById({json.dumps(element)}).textContent")

    def point(self, element, across, down):
        """Moves the mouse to a place in the element, 0..1 of its width and height."""
        self.run(f"document.getElementById('{element}').scrollIntoView({{block: 'center'}})")
        box = self.run(f"document.getElementById('{element}').getBoundingClientRect().toJSON()")
        self.ask(
            "Input.dispatchMouseEvent", type="mouseMoved",
            x=box["left"] + across * box["width"], y=box["top"] + down * box["height"],
        )  # fmt: skip

    def press(self, key, *, text=""):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "")

    def screenshot(self, path):
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1})
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        os.close(self._to)  # it ends when nobody can speak to it any more
        try:
            self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._from)
        self._home.cleanup()

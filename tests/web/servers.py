"""What tests of the API need: a state folder with jobs and tokens, and a server that reads it."""

import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

import httpx

from cli.journals import one_failure_and_on, write_job
from holdfast.client import ApiError, Client
from holdfast.journal.jobdir import StateDir
from holdfast.web.access.tokens import TokenFile
from run.place import wait_for

STARTED_S = 200.0  # a guard, as the others are
WAIT_S = 100.0
UNAVAILABLE = 503  # for now, as the answer says
HOUR_S = 3600.0


class Place:
    """A state folder with a few jobs; tokens on demand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = StateDir(root)
        self.tokens = TokenFile(root / "server")
        self._secrets: dict[str, str] = {}

    def job(self, name: str, events=None, **more):
        return write_job(self.state, name, events or one_failure_and_on(), **more)

    def token(self, role: str, *, name: str = "", expires_s: float = HOUR_S) -> str:
        """The secret of a token, made once for each name."""
        name = name or f"the-{role}"
        if name not in self._secrets:
            self._secrets[name] = self.tokens.create(name, role, time.time(), expires_s)
        return self._secrets[name]


@cache
def trust() -> ssl.SSLContext:
    """One for all clients. Each would else read the certificates of all authorities, for 20 ms of CPU."""
    return ssl.create_default_context()


class Server:
    """`holdfast serve` as a process."""

    def __init__(self, state: Path, *flags: str, env: dict[str, str] | None = None) -> None:
        words = ["-m", "holdfast", "serve", "--state-dir", str(state)]
        if "--address" not in flags:
            words += ["--address", "127.0.0.1:0"]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, *words, *flags],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **(env or {})},
            text=True,
        )
        self.url = self._ready()

    def _ready(self) -> str:
        timer = threading.Timer(STARTED_S, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        found = re.match(r"serving (https?://\S+)", line)
        if found is None:
            said = self.said()
            self.stop()
            raise AssertionError(f"the server did not start: {line!r} {said}")
        return found[1]

    def said(self) -> str:
        """What it wrote to stderr so far."""
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")

    def client(self, token: str = "", **more) -> Client:
        return Client(self.url, token, **{"verify": trust(), **more})

    def http(self, token: str = "", **more) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        more = {"verify": trust(), "timeout": WAIT_S, **more}
        return httpx.Client(base_url=self.url, headers={**headers, **more.pop("headers", {})}, **more)

    @property
    def address(self) -> tuple[str, int]:
        url = httpx.URL(self.url)
        return url.host, url.port

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(200)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process.stdout.close()
        self.errors.close()
        return code


def until(look, within_s: float = WAIT_S):
    """What `look` returns once it is true. Asks again and again: what is waited for happens in another process."""

    def looked():
        try:
            return look()
        except ApiError as error:
            if error.status != UNAVAILABLE:
                raise
            return None

    return wait_for("what another process does", looked, within_s)

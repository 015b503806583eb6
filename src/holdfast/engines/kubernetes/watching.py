"""Watches Kubernetes objects of one kind in a thread: one list at the start, then a watch that is resumed
where it ended.

A watch that ends, breaks or hangs is resumed with the last version seen; only `410 Gone` requires another
list. Bookmarks keep that version fresh. What arrives is queued undecoded.

source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import httpx2

from holdfast.engines.kubernetes.connection import Connection, RequestFailed, ServerAway, failure
from holdfast.parsers.kubernetes.objects import NotRead, page, status_body, version_of, watch_line

PAGE = 500
WATCH_S = 240.0  # asked of the server; servers end watches by themselves after some minutes too
# Real servers send a bookmark about every minute: a connection without any line for longer is dead.
QUIET_S = 90.0
AGAIN_S, AGAIN_S_MAX = 0.2, 5.0


class Seen(NamedTuple):
    """One message of a watch. `kind`: "list" with all objects, then "changed" and "gone" with single ones.

    "away": the server does not respond, or rejects the request, for the reason `why`; "back": it responds
    again.
    """

    kind: Literal["list", "changed", "gone", "away", "back"]
    objects: tuple[bytes, ...] = ()
    why: str = ""
    is_forbidden: bool = False
    version: str = ""  # of a list


class Watching:
    """A watch request to the Kubernetes API, repeated in a thread of its own from `start` on.

    `params`: selectors of labels and fields. `hear`: called in that thread with this watch and what the server sent.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        params: Mapping[str, str],
        hear: Callable[["Watching", Seen], None],
        name: str,
    ) -> None:
        self._connection, self._path, self._params, self._hear = connection, path, dict(params), hear
        self.name = name
        self.lists = self.watches = 0
        self.answered_s = 0.0  # when the server last sent anything, by time.monotonic
        self._version = ""
        self._wait_s = AGAIN_S
        self._is_away = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-watch-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops the watch without waiting, because the thread may be blocked in a read."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
                self._wait_s = AGAIN_S
            except RequestFailed as error:
                self._refused(error)
            except (ServerAway, httpx2.HTTPError, OSError, NotRead) as error:
                self._away(f"the API server does not respond ({error or type(error).__name__})")

    def _refused(self, error: RequestFailed) -> None:
        if error.code == 410:
            self._version = ""
            self._over.wait(self._wait_s)
            self._wait_s = min(AGAIN_S_MAX, 2 * self._wait_s)
            return
        self._away(f"the API server rejects {self.name}: {error}", error.is_forbidden, error.again_s)

    def _away(self, why: str, is_forbidden: bool = False, again_s: float | None = None) -> None:
        if not self._is_away:
            self._is_away = True
            self._hear(self, Seen("away", why=why, is_forbidden=is_forbidden))
        wait_s = 60.0 if is_forbidden else max(again_s or 0.0, self._wait_s * random.uniform(0.7, 1.3))
        self._over.wait(wait_s)
        self._wait_s = min(AGAIN_S_MAX, 2 * self._wait_s)

    def _answered(self) -> None:
        self.answered_s = time.monotonic()
        if self._is_away:
            self._is_away = False
            self._hear(self, Seen("back"))

    def _list(self) -> None:
        self.lists += 1
        objects: list[bytes] = []
        more = ""
        while True:
            params = {**self._params, "limit": str(PAGE), **({"continue": more} if more else {})}
            found = page(self._connection.request("GET", self._path, params=params, within_s=30.0).content)
            objects += [bytes(item) for item in found.items or ()]
            version, more = found.version, found.more
            if not more:
                break
        self._answered()
        self._hear(self, Seen("list", tuple(objects), version=version))
        self._version = version

    def _watch(self) -> None:
        self.watches += 1
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(int(WATCH_S * random.uniform(0.8, 1.2))),
        }
        timeout = httpx2.Timeout(10.0, read=QUIET_S)
        with self._connection.client.stream("GET", self._path, params=params, timeout=timeout) as answer:
            if answer.status_code >= 400:
                answer.read()
                raise failure(answer)
            self._answered()
            for line in answer.iter_lines():
                if self._over.is_set():
                    return
                if line:
                    self._take(line.encode())

    def _take(self, line: bytes) -> None:
        self._answered()
        event = watch_line(line)
        raw = bytes(event.object)
        if event.type == "ERROR":
            status = status_body(raw)
            raise RequestFailed(status.code or 500, status.reason, status.message)
        if event.type in ("ADDED", "MODIFIED"):
            self._hear(self, Seen("changed", (raw,)))
        elif event.type == "DELETED":
            self._hear(self, Seen("gone", (raw,)))
        self._version = version_of(raw) or self._version
        self._wait_s = AGAIN_S

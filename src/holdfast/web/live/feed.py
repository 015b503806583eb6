"""Distributes each change to all viewers that want it, encoded once; keeps the newest for viewers that
reconnect.

Every viewer has a bounded queue: a viewer that does not read is dropped, and does not delay others.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from holdfast.model.documents.jobs import LogLine
from holdfast.model.documents.live import AnyLive, Change, LiveKind, StreamEnded, StreamReset
from holdfast.model.documents.output import OutputLine
from holdfast.web.refusals import unavailable

KEPT_EVENTS = 5_000
KEPT_BYTES = 8 << 20
_encode = msgspec.json.Encoder().encode


class _Kept(NamedTuple):
    """An event that is kept for viewers that reconnect."""

    number: int
    job: str
    is_of_one_job: bool
    data: bytes


class Viewer:
    """The event stream of one connected client. `job`: only events of this job, with its log; empty means all jobs,
    without logs.
    """

    def __init__(self, job: str, queue_max: int) -> None:
        self.job = job
        self.is_slow = False
        self.ended: StreamEnded | None = None
        self._queue: deque[bytes] = deque()
        self._queue_max = queue_max
        self._news = asyncio.Event()

    def wants(self, job: str, *, is_of_one_job: bool) -> bool:
        return job == self.job if self.job else not is_of_one_job

    def put(self, data: bytes) -> None:
        if len(self._queue) >= self._queue_max:
            self.is_slow = True
            self._queue.clear()
        elif not self.is_slow:
            self._queue.append(data)
        self._news.set()

    def end(self, ended: StreamEnded) -> None:
        self.ended = ended
        self._news.set()

    async def next(self, within_s: float) -> bytes:
        """Waits for events and returns all that have arrived, encoded; empty after `within_s` seconds without any."""
        if not self._queue and not self.is_slow and self.ended is None:
            try:
                async with asyncio.timeout(within_s):
                    await self._news.wait()
            except TimeoutError:
                return b""
        self._news.clear()
        found = b"".join(self._queue)
        self._queue.clear()
        return found


class Feed:
    """Distributes events to the connected viewers, for one event loop.

    The id of an event is "boot-number", so ids of another server process do not match.
    """

    def __init__(self, viewers_max: int, queue_max: int) -> None:
        self._boot = secrets.token_hex(4)
        self._number = 0
        self._kept: deque[_Kept] = deque(maxlen=KEPT_EVENTS)
        self._kept_bytes = 0
        self._viewers: set[Viewer] = set()
        self._viewers_max, self._queue_max = viewers_max, queue_max
        self.has_viewers = asyncio.Event()

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    @property
    def jobs(self) -> frozenset[str]:
        """Returns the jobs of viewers that watch a single job."""
        return frozenset(viewer.job for viewer in self._viewers if viewer.job)

    def join(self, job: str, last: str) -> tuple[Viewer, bytes]:
        """Returns a new viewer, and the events it has missed since the event `last`. Raises Refusal."""
        if len(self._viewers) >= self._viewers_max:
            raise unavailable(f"{self._viewers_max} viewers are connected already: try again later", 30.0)
        viewer = Viewer(job, self._queue_max)
        self._viewers.add(viewer)
        self.has_viewers.set()
        return viewer, self._missed(viewer, last)

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers:
            self.has_viewers.clear()

    def publish(self, changes: Iterable[Change]) -> None:
        """Sends changes to all viewers that want them; changes that are published together are sent together."""
        batch: list[_Kept] = []
        for one in changes:
            self._number += 1
            data = encoded(one.kind, one.data, f"{self._boot}-{self._number}")
            batch.append(_Kept(self._number, one.job, one.kind == "log", data))
        if not batch:
            return
        for kept in batch:
            if len(self._kept) == KEPT_EVENTS:
                self._kept_bytes -= len(self._kept.popleft().data)
            self._kept.append(kept)
            self._kept_bytes += len(kept.data)
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft().data)
        self._hand_out(batch)

    def end_all(self, why: str) -> None:
        for viewer in self._viewers:
            viewer.end(StreamEnded(why=why))

    def _hand_out(self, batch: list[_Kept]) -> None:
        joined: dict[str, bytes] = {}  # what all viewers of one job get, made once
        for viewer in self._viewers:
            if viewer.job not in joined:
                wanted = (one.data for one in batch if viewer.wants(one.job, is_of_one_job=one.is_of_one_job))
                joined[viewer.job] = b"".join(wanted)
            if data := joined[viewer.job]:
                viewer.put(data)

    def _missed(self, viewer: Viewer, last: str) -> bytes:
        now = f"id: {self._boot}-{self._number}\n\n".encode()
        if not last:
            return now
        boot, _, number = last.partition("-")
        oldest = self._kept[0].number if self._kept else self._number + 1
        known = boot == self._boot and number.isascii() and number.isdigit() and len(number) < 16
        if not known or not oldest - 1 <= int(number) <= self._number:
            why = "older events are no longer available: read the documents again"
            return now + encoded("reset", StreamReset(why=why), "")
        return b"".join(
            one.data
            for one in self._kept
            if one.number > int(number) and viewer.wants(one.job, is_of_one_job=one.is_of_one_job)
        )


def encoded(kind: LiveKind, data: AnyLive | LogLine | OutputLine, id_: str) -> bytes:
    """Encodes a change as a server-sent event."""
    head = f"id: {id_}\n" if id_ else ""
    return f"{head}event: {kind}\ndata: ".encode() + _encode(data) + b"\n\n"

"""Implements the response that streams server-sent events to one viewer, until one side ends it."""

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.model.documents.live import StreamEnded
from holdfast.web.live.feed import Viewer, encoded

BEAT_S = 15.0
RETRY = b"retry: 2000\n\n"
BEAT = b"event: beat\ndata: {}\n\n"
LIFETIME_S = 6 * 3600.0  # then the browser connects anew


class EventStream(StreamingResponse):
    """An HTTP response that streams server-sent events to one viewer.

    `stands`: returns whether the viewer still has access; called with each heartbeat. `leave`: called when the stream
    ends.
    """

    def __init__(
        self, viewer: Viewer, missed: bytes, stands: Callable[[], bool], leave: Callable[[], None]
    ) -> None:
        self._leave = leave
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_events(viewer, missed, stands), media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def _events(viewer: Viewer, missed: bytes, stands: Callable[[], bool]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    began_s = checked_s = loop.time()
    yield RETRY + missed
    while True:
        found = await viewer.next(BEAT_S)
        if viewer.is_slow:
            why = "this client has not read its events for too long: reconnect and read the documents again"
            yield encoded("end", StreamEnded(why=why), "")
            return
        if found or viewer.ended is None:
            yield found or BEAT
        if viewer.ended is not None:
            yield encoded("end", viewer.ended, "")
            return
        if loop.time() - checked_s >= BEAT_S:
            checked_s = loop.time()
            if not stands():
                viewer.end(StreamEnded(why="the token or session has ended: log in again", again=False))
            elif checked_s - began_s > LIFETIME_S:
                viewer.end(StreamEnded(why="the stream has reached its maximum duration: reconnect"))

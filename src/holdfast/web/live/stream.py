"""The answer that goes on: server-sent events to one viewer, until one of the two sides ends it."""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from holdfast.model.documents.live import StreamEnded
from holdfast.web.live.feed import Feed, Viewer, encoded
from holdfast.web.live.tails import Tails, TailWanted

BEAT_S = 15.0
RETRY = b"retry: 2000\n\n"
BEAT = b"event: beat\ndata: {}\n\n"
LIFETIME_S = 6 * 3600.0  # then the browser connects anew, and its token is checked anew


def stream(feed: Feed, tails: Tails, job: str, last: str, tail: TailWanted | None) -> StreamingResponse:
    """raises: Refusal"""
    viewer, missed = feed.join(job, last)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _events(feed, tails, viewer, missed, tail), media_type="text/event-stream", headers=headers
    )


async def _events(
    feed: Feed, tails: Tails, viewer: Viewer, missed: bytes, tail: TailWanted | None
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + LIFETIME_S
    try:
        if tail is not None:
            tails.join(tail, viewer)
        yield RETRY + missed
        while True:
            found = await viewer.next(BEAT_S)
            if viewer.is_slow:
                why = "this viewer has not read its events for too long: connect again and read the documents anew"
                yield encoded("end", StreamEnded(why=why), "")
                return
            if found or viewer.ended is None:
                yield found or BEAT
            if viewer.ended is None and loop.time() > until_s:
                viewer.end(StreamEnded(why="the stream has its age: connect again"))
            if viewer.ended is not None and not found:
                yield encoded("end", viewer.ended, "")
                return
    finally:
        if tail is not None:
            tails.leave(tail, viewer)
        feed.leave(viewer)

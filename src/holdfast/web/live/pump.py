"""Polls the jobs for changes several times a second and publishes them to viewers.

An error in one round is logged, and the next round follows.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from holdfast.model.documents.live import Change
from holdfast.web.live.feed import Feed

LOG = logging.getLogger("holdfast.web")
LOOK_S = 0.2
IDLE_LOOK_S = 2.0  # while nobody watches
FAILED_S = 5.0


async def pump(feed: Feed, changes: Callable[[], Awaitable[Sequence[Change]]]) -> None:
    while True:
        try:
            feed.publish(await changes())
        except Exception:
            LOG.exception("changes cannot be read")
            await asyncio.sleep(FAILED_S)
        if feed.viewers:
            await asyncio.sleep(LOOK_S)
            continue
        try:
            async with asyncio.timeout(IDLE_LOOK_S):
                await feed.has_viewers.wait()
        except TimeoutError:
            continue

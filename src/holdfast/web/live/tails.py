"""Follows the output of jobs for viewers: each output is read once, however many viewers it has."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from holdfast.model.documents.output import OutputPage
from holdfast.web.api.queries import OutputQuery
from holdfast.web.live.feed import Viewer, encoded
from holdfast.web.refusals import Refusal, unavailable

LOG = logging.getLogger("holdfast.web")
LOOK_S = 0.3
LINES_MAX = 500
TAILS_MAX = 100


class TailWanted(NamedTuple):
    """The output of a job to follow: job, workers, ranks, attempt. Without workers and ranks: that of all ranks."""

    job: str
    workers: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    attempt: int | None = None


class Tails:
    """All job outputs that viewers follow. `read`: returns a page of output, without blocking the event loop."""

    def __init__(self, read: Callable[[str, OutputQuery], Awaitable[OutputPage]]) -> None:
        self._read = read
        self._viewers: dict[TailWanted, set[Viewer]] = {}
        self._tasks: dict[TailWanted, asyncio.Task[None]] = {}

    async def join(self, wanted: TailWanted, viewer: Viewer) -> None:
        """Adds a viewer of a job's output; lines that are written from now on are sent to the viewer. Raises
        Refusal.
        """
        if wanted not in self._viewers and len(self._viewers) >= TAILS_MAX:
            raise unavailable(f"{TAILS_MAX} outputs are followed already: try again later", 30.0)
        self._viewers.setdefault(wanted, set()).add(viewer)
        if wanted not in self._tasks:
            first = await self._read(wanted.job, _query(wanted, ""))
            if wanted not in self._tasks:
                self._tasks[wanted] = asyncio.create_task(self._follow(wanted, first.after))

    def leave(self, wanted: TailWanted, viewer: Viewer) -> None:
        viewers = self._viewers.get(wanted, set())
        viewers.discard(viewer)
        if not viewers:
            self._viewers.pop(wanted, None)
            if task := self._tasks.pop(wanted, None):
                task.cancel()

    async def _follow(self, wanted: TailWanted, cursor: str) -> None:
        """Sends the lines after the cursor; if the job has no output yet, all lines."""
        while True:
            query = _query(wanted, cursor)
            try:
                page = await self._read(wanted.job, query)
            except Refusal as error:
                LOG.debug("output of %s: %s", wanted.job, error.text)
                await asyncio.sleep(LOOK_S * 5)
                continue
            if cursor or page.lines:
                self._hand_out(wanted, page)
            cursor = page.after or cursor
            if len(page.lines) < query.limit:
                await asyncio.sleep(LOOK_S)

    def _hand_out(self, wanted: TailWanted, page: OutputPage) -> None:
        data = b"".join(encoded("output", line, "") for line in page.lines)
        for viewer in self._viewers.get(wanted, ()):
            if data:
                viewer.put(data)


def _query(wanted: TailWanted, cursor: str) -> OutputQuery:
    """Returns the query for lines after a cursor; without one, for the last line and the cursor behind it."""
    return OutputQuery(
        worker=wanted.workers,
        rank=wanted.ranks,
        attempt=wanted.attempt,
        cursor=cursor,
        direction="after" if cursor else "before",
        limit=LINES_MAX if cursor else 1,
    )

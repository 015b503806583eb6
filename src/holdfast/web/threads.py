"""Runs blocking work in threads: each kind of work in its own bounded pool, with a time limit.

The threads are daemons: one that is still reading a long journal does not keep the server from ending.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.web.refusals import unavailable

Answer = TypeVar("Answer")
_Work = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Pool:
    """A pool of threads. `waiting_max`: further requests are rejected.

    `limit_s`: time limit after which the caller gets an error.
    """

    def __init__(self, name: str, threads: int, waiting_max: int, limit_s: float) -> None:
        self._name, self._threads_max = name, threads
        self._waiting_max, self._limit_s = waiting_max, limit_s
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = 0
        self._under_way = 0

    async def run(self, do: Callable[[], Answer]) -> Answer:
        """Runs a function in a thread and returns its result.

        Raises Refusal, and what the function raises.
        """
        if self._under_way >= self._waiting_max:
            raise unavailable(
                f"the server is overloaded ({self._under_way} requests are waiting): try again later", 1.0
            )
        self._under_way += 1
        if self._threads < min(self._under_way, self._threads_max):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"holdfast-{self._name}", daemon=True).start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        future.add_done_callback(self._is_done)
        self._work.put((do, loop, future))
        try:
            async with asyncio.timeout(self._limit_s):
                return await asyncio.shield(future)
        except TimeoutError:
            raise unavailable(
                f"the request took longer than {self._limit_s:g} s: request less data", 10.0
            ) from None

    def close(self) -> None:
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            do, loop, future = work
            answer, error = None, None
            try:
                answer = do()
            except BaseException as raised:  # noqa: BLE001 - it is raised again where the caller waits
                error = raised
            try:
                loop.call_soon_threadsafe(_settle, future, answer, error)
            except RuntimeError:
                return  # the loop is closed: the server has ended

    def _is_done(self, future: "asyncio.Future[Any]") -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # possibly without a waiter


def _settle(future: "asyncio.Future[Any]", answer: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)

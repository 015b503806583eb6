"""Runs what blocks in threads: each kind of work in its own bounded pool, with a limit in time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.web.refusals import unavailable

Answer = TypeVar("Answer")


class Pool:
    """`waiting_max`: more than that at once are refused. `limit_s`: then the caller gets no answer, the thread ends later."""

    def __init__(self, name: str, threads: int, waiting_max: int, limit_s: float) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"holdfast-{name}")
        self._name, self._waiting_max, self._limit_s = name, waiting_max, limit_s
        self._under_way = 0

    async def run(self, do: Callable[[], Answer]) -> Answer:
        """raises: Refusal, and what `do` raises"""
        if self._under_way >= self._waiting_max:
            raise unavailable(f"the server is busy: {self._under_way} requests wait already", 1.0)
        self._under_way += 1
        future = asyncio.get_running_loop().run_in_executor(self._executor, do)
        future.add_done_callback(self._is_done)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._limit_s)
        except TimeoutError:
            future.cancel()
            raise unavailable(f"this took longer than {self._limit_s:g} s: ask for less", 10.0) from None

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _is_done(self, future: asyncio.Future[Answer]) -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # it may be that nobody waits for it any more

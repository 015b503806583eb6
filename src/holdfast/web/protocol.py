"""Extends uvicorn's HTTP protocol with time limits for clients that send no request or read no response."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class LimitedProtocol(H11Protocol):
    """HTTP protocol that aborts a connection if the client is silent for too long.

    `close` would not do, because it first sends what is left to a client that does not read.
    """

    still_s = 15.0

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._reading = self.loop.call_later(self.still_s, self._no_request)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._reading = self._reading or self.loop.call_later(self.still_s, self._no_request)
        elif self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(self.still_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _no_request(self) -> None:
        """Aborts a connection whose request headers are incomplete at the time limit."""
        self._reading = None
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()


def limited(still_s: float) -> type[LimitedProtocol]:
    """Returns the protocol class for a server with this time limit."""
    return type("LimitedProtocol", (LimitedProtocol,), {"still_s": still_s})

"""Serves one WebSocket (RFC 6455) on a connection of the API server: the handshake and whole messages."""

import asyncio
import base64
import hashlib

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL = 1000


def accepted(request, subprotocols):
    """Headers of the answer, and the subprotocol; (None, "") where the client offers none of them."""
    offered = [one.strip() for one in request.headers.get("sec-websocket-protocol", "").split(",")]
    chosen = next((one for one in subprotocols if one in offered), "")
    if not chosen or "sec-websocket-key" not in request.headers:
        return None, ""
    digest = hashlib.sha1((request.headers["sec-websocket-key"] + GUID).encode()).digest()
    return [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
        f"Sec-WebSocket-Protocol: {chosen}",
    ], chosen


class WebSocket:
    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._lock = asyncio.Lock()

    async def receive(self):
        """The next message; None once the client has closed."""
        whole = b""
        while True:
            first, second = await self._reader.readexactly(2)
            size = second & 0x7F
            if size > 125:
                size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8))
            mask = await self._reader.readexactly(4) if second & 0x80 else bytes(4)
            data = await self._reader.readexactly(size)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            kind = first & 0x0F
            if kind == CLOSE:
                return None
            if kind == PING:
                await self._send(PONG, data)
            elif kind in (CONTINUED, TEXT, BINARY):
                whole += data
                if first & 0x80:
                    return whole

    async def send(self, data):
        await self._send(BINARY, data)

    async def close(self):
        await self._send(CLOSE, NORMAL.to_bytes(2))

    async def _send(self, kind, data):
        size = len(data)
        head = bytes((0x80 | kind,))
        if size < 126:
            head += bytes((size,))
        else:
            head += bytes((126,)) + size.to_bytes(2) if size < 1 << 16 else bytes((127,)) + size.to_bytes(8)
        async with self._lock:
            self._writer.write(head + data)
            await self._writer.drain()

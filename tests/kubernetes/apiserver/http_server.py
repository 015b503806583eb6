"""Serves HTTP/1.1 on loopback for the API server: requests with bodies, streamed answers, and connections that break.

A server of its own, because tests cut connections in the middle of an answer, which frameworks do not offer.
"""

import asyncio
import contextlib
import json
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from kubernetes.apiserver.answers import JSON, REASONS, Failure, encoded

HEAD_BYTES_MAX = 64 << 10
BODY_BYTES_MAX = 16 << 20


class Dropped(Exception):
    """The connection is closed without an answer."""


@dataclass
class Request:
    method: str
    path: str
    query: dict
    headers: dict
    body: bytes
    pairs: tuple = ()  # of the query, which may name one thing several times
    connection: object = None  # by which it came

    @property
    def json(self):
        try:
            return json.loads(self.body) if self.body else None
        except ValueError as error:
            raise Failure(400, f"the body is not JSON: {error}") from error


@dataclass
class Answer:
    """`stream`: an async iterator of bytes, instead of `body`. `upgrade`: lines of the head, and what then speaks on the
    connection.
    """

    code: int = 200
    body: object = None
    stream: object = None
    type: str = JSON
    headers: tuple = ()
    upgrade: object = None


class HttpServer:
    def __init__(self, handle):
        self._handle = handle
        self._open = set()
        self._server = None
        self.port = 0

    async def start(self, port=0, tls=None):
        self._server = await asyncio.start_server(
            self._connection, "127.0.0.1", port, limit=HEAD_BYTES_MAX, ssl=tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def drop_all(self, without=None):
        """Cuts every open connection but one."""
        for writer in list(self._open):
            if writer is not without:
                writer.transport.abort()

    async def _connection(self, reader, writer):
        self._open.add(writer)
        try:
            while (request := await _read(reader)) is not None:
                request.connection = writer
                answer = await self._answer(request)
                if answer.upgrade is not None:
                    head, speak = answer.upgrade
                    writer.write("\r\n".join([*head, "", ""]).encode())
                    await speak(reader, writer)
                    break
                await _write(writer, answer)
                if request.headers.get("connection", "").lower() == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError, Dropped, asyncio.LimitOverrunError):
            pass
        finally:
            self._open.discard(writer)
            with contextlib.suppress(ConnectionError, RuntimeError):
                writer.transport.abort()

    async def _answer(self, request):
        try:
            return await self._handle(request)
        except Failure as failure:
            headers = ()
            if failure.retry_after_s is not None:
                headers = (("Retry-After", str(failure.retry_after_s)),)
            return Answer(failure.code, failure.body(), headers=headers)


async def _read(reader):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
        if name
    }
    body = b""
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif length := int(headers.get("content-length", 0)):
        if length > BODY_BYTES_MAX:
            return None
        body = await reader.readexactly(length)
    url = urlsplit(target)
    pairs = tuple(parse_qsl(url.query, keep_blank_values=True))
    return Request(method, unquote(url.path), dict(pairs), headers, body, pairs)


async def _write(writer, answer):
    reason = REASONS.get(answer.code, "OK")
    lines = [f"HTTP/1.1 {answer.code} {reason}", f"Content-Type: {answer.type}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    if answer.stream is None:
        body = answer.body if isinstance(answer.body, bytes) else encoded(answer.body)
        lines.append(f"Content-Length: {len(body)}")
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        return
    lines.append("Transfer-Encoding: chunked")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()
    async with contextlib.aclosing(answer.stream) as parts:
        async for part in parts:
            if writer.is_closing():
                raise ConnectionResetError
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()

"""Serves GET /metrics on one address, in the thread of the caller.

The HTTP server of the standard library would cost an agent 1.5 MiB of imports, most of the memory for its
metrics. It serves one connection at a time, each for at most `CLIENT_S`.
"""

import errno
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

CLIENT_S = 2.0  # for receiving the request and sending the answer
REQUEST_BYTES_MAX = 8 << 10
BACKLOG = 16
READ_BYTES = 4 << 10
IN_USE_TRIES = 64  # ports to try if any port will do
PAGE = b"Holdfast: its metrics for Prometheus are at /metrics\n"
_PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    """The response to a request for metrics. `body`: None if there are no values yet."""

    body: bytes | None
    content_type: str


def parsed(address: str) -> tuple[str, int]:
    """Parses HOST:PORT: ("0.0.0.0", 9755) for "0.0.0.0:9755" or ":9755" (all addresses), also "[::1]:9755".

    Raises ValueError.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) >= 1 << 16:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def listening(host: str, port: int, *, exact: bool = True) -> socket.socket:
    """Opens a listener. `exact`: only this port, otherwise the first free one from it on. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = port if exact else min(port + IN_USE_TRIES, (1 << 16) - 1)
    for number in range(port, last + 1):
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, number))
            listener.listen(BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            if number == last or error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, "no port is free")


def serve_one(listener: socket.socket, answer: Callable[[str], Answer]) -> None:
    """Serves one waiting connection, if any. `answer`: receives the Accept header. Never raises."""
    with suppress(OSError):
        client, _ = listener.accept()
        with client:
            _serve(client, answer)


def _serve(client: socket.socket, answer: Callable[[str], Answer]) -> None:
    until_s = time.monotonic() + CLIENT_S
    request = _request(client, until_s)
    if request is None:
        return
    head = _replied(request, answer)
    client.settimeout(max(0.1, until_s - time.monotonic()))
    client.sendall(head)
    client.shutdown(socket.SHUT_WR)


def _request(client: socket.socket, until_s: float) -> bytes | None:
    """Reads an HTTP request up to the empty line; None if the client is too slow or the request too long."""
    request = b""
    while b"\r\n\r\n" not in request and b"\n\n" not in request:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or len(request) > REQUEST_BYTES_MAX:
            return None
        client.settimeout(left_s)
        piece = client.recv(READ_BYTES)
        if not piece:
            return None
        request += piece
    return request


def _replied(request: bytes, answer: Callable[[str], Answer]) -> bytes:
    first, *headers = request.decode("latin-1").split("\n")
    words = first.split()
    if len(words) < 2:
        return _response(400, b"", _PLAIN)
    method, path = words[0], words[1].partition("?")[0]
    if method not in ("GET", "HEAD"):
        return _response(405, b"", _PLAIN)
    if path == "/":
        return _response(200, PAGE, _PLAIN, is_head=method == "HEAD")
    if path != "/metrics":
        return _response(404, b"", _PLAIN)
    reply = answer(_accept(headers))
    if reply.body is None:
        return _response(503, b"no values yet\n", _PLAIN)
    return _response(200, reply.body, reply.content_type, is_head=method == "HEAD")


def _accept(headers: list[str]) -> str:
    pairs = (line.partition(":") for line in headers)
    return ",".join(value.strip() for name, _, value in pairs if name.strip().lower() == "accept")


def _response(status: int, body: bytes, content_type: str, *, is_head: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else body)

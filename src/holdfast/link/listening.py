"""Opens the listening TCP sockets of a controller."""

import socket
from collections.abc import Callable, Sequence

from holdfast.link.resolve import Address
from holdfast.link.wire import Wire

BACKLOG = 4096


class ListenFailed(OSError):
    """Raised when the controller cannot listen at its address; the message gives the address and
    the reason.
    """


def listeners(addresses: Sequence[Address]) -> dict[int, socket.socket]:
    """Opens non-blocking listening sockets, and returns them by descriptor.

    Port 0: a free one. raises: ListenFailed
    """
    made: dict[int, socket.socket] = {}
    try:
        for host, port in addresses:
            where = f"{host}:{port}"
            family, _, _, _, place = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, socket.SOCK_STREAM)
            made[listener.fileno()] = listener
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind(place)
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in made.values():
            listener.close()
        raise ListenFailed(f"the controller cannot listen at {where}: {error}") from error
    return made


def accepted(sock: socket.socket, wires: Callable[[socket.socket], Wire]) -> Wire | None:
    """Makes an accepted connection non-blocking, without Nagle's delay, and wraps it with `wires`.

    None if the connection is already broken.
    """
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return wires(sock)
    except OSError:
        sock.close()
        return None

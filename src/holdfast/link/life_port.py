"""Listens on a port of the agent, so that its controller can find out whether the agent's process exists.

No data is exchanged: a connection is accepted and closed. After the process has ended, the kernel of its host refuses
connections, which proves the end without a scheduler; a frozen or disconnected node does not refuse connections.
"""

import socket
from contextlib import suppress

BACKLOG = 64
TAKEN_MAX = 64  # connections accepted per turn


class LifePort:
    """A listening port by which others can find out that this process lives; every connection is closed at once.

    `port`: if it is 0 or in use, nothing listens, and `why_not` contains the reason.
    """

    def __init__(self, address: str, port: int) -> None:
        self.why_not = "" if port else "no port is given"
        self._socket: socket.socket | None = None
        if not port:
            return
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        found = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((address, port))
            found.listen(BACKLOG)
        except OSError as error:
            found.close()
            self.why_not = str(error)
            return
        self._socket = found

    def channels(self) -> list[int]:
        return [self._socket.fileno()] if self._socket is not None else []

    def turn(self) -> None:
        """Closes the connections that have arrived. Never blocks."""
        for _ in range(TAKEN_MAX if self._socket is not None else 0):
            with suppress(ConnectionError):
                try:
                    assert self._socket is not None
                    self._socket.accept()[0].close()
                except BlockingIOError:
                    return

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

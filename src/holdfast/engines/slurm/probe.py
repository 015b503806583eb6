"""Tests whether a node's slurmd accepts TCP connections, without blocking."""

import errno
import select
import socket
from contextlib import suppress

GONE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EHOSTDOWN)
TRY_AGAIN_S = 0.25  # a single packet may be lost, and TCP repeats it only after a second
TRIES_MAX = 4


class Probe:
    """A test of a slurmd with a few attempts to connect.

    `answer`: None while it runs; True if the machine responded, whether or not it accepted; False if it did not
    respond. `refused`: the machine responded that no process listens on the port.
    """

    def __init__(self, address: str, port: int, now_s: float, within_s: float) -> None:
        self.answer: bool | None = None
        self.refused = False
        self._until_s = now_s + within_s
        self._next_s = now_s
        self._left = TRIES_MAX
        self._sockets: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except OSError:
            self.answer = False
            return
        family, kind, proto, _, where = found[0]
        self._family, self._kind, self._proto = int(family), int(kind), proto
        self._where: tuple[object, ...] = where
        self._try(now_s)

    def look(self, now_s: float) -> bool | None:
        if self.answer is None and self._sockets:
            for one in select.select([], self._sockets, [], 0)[1]:
                self._judge(one, one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        if self.answer is None and now_s >= self._until_s:
            self.answer = False
        elif self.answer is None and now_s >= self._next_s and self._left:
            self._try(now_s)
        if self.answer is not None:
            self.close()
        return self.answer

    def close(self) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.close()
        self._sockets.clear()

    def _try(self, now_s: float) -> None:
        self._left -= 1
        self._next_s = now_s + TRY_AGAIN_S
        try:
            one = socket.socket(self._family, self._kind | socket.SOCK_NONBLOCK, self._proto)
        except OSError:  # out of descriptors: says nothing about the node
            self._left += 1
            return
        self._sockets.append(one)
        self._judge(one, one.connect_ex(self._where))

    def _judge(self, one: socket.socket, error: int) -> None:
        if error == errno.EINPROGRESS:
            return
        if error not in GONE:
            self.answer, self.refused = True, error == errno.ECONNREFUSED
            return
        with suppress(OSError):
            one.close()
        self._sockets.remove(one)

"""Whether a node's slurmd takes connections. Never waits for it."""

import errno
import select
import socket
from contextlib import suppress

GONE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EHOSTDOWN)


class Probe:
    """One attempt to connect. `answer`: None while it is under way; True: the machine is there, whether or not it
    takes connections; False: nobody answered. `refused`: the machine answered that nobody listens there."""

    def __init__(self, address: str, port: int, until_s: float) -> None:
        self.answer: bool | None = None
        self.refused = False
        self._until_s = until_s
        self._socket: socket.socket | None = None
        try:
            found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except OSError:
            self.answer = False
            return
        family, kind, proto, _, where = found[0]
        self._socket = socket.socket(family, kind | socket.SOCK_NONBLOCK, proto)
        self._judge(self._socket.connect_ex(where))

    def look(self, now_s: float) -> bool | None:
        if self._socket is not None and self.answer is None:
            if select.select([], [self._socket], [], 0)[1]:
                self._judge(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            elif now_s >= self._until_s:
                self.answer = False
        if self.answer is not None:
            self.close()
        return self.answer

    def close(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None

    def _judge(self, error: int) -> None:
        if error == errno.EINPROGRESS:
            return
        self.answer = error not in GONE
        self.refused = error == errno.ECONNREFUSED

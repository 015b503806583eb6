"""Serves processes that connect to `reaper.sock`: they follow the reaper's messages, send orders, or register
as ranks. Never waits for one.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .facts import Facts

NAME = "reaper.sock"
CLIENTS_MAX = 256  # a rank that joins is one for a moment, and a node has dozens
OUT_BYTES_MAX = 4 << 20
IN_BYTES_MAX = 4 << 20
CREDENTIALS = struct.Struct("3i")


class _Client:
    """A connected process. `pid`: from the kernel; 0 if unknown or in another pid namespace."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.channel = channel
        self.pid = pid
        self.unread = b""
        self.unsent = b""
        self.follows = False


class Clients:
    """Connections of other processes to `reaper.sock`.

    `obey` receives each order, a JSON object; "follow" is handled here. `joined` receives a process id and
    what the process says of its rank, and returns the rank's number in the job, which is sent as the reply.
    """

    def __init__(
        self,
        poll: select.poll,
        facts: Facts,
        obey: Callable[[dict[str, Any]], None],
        joined: Callable[[int, dict[str, Any]], int | None],
    ) -> None:
        self._joined = joined
        self._poll = poll
        self._facts = facts
        self._obey = obey
        self._all: dict[int, _Client] = {}
        self._listener: socket.socket | None = None

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, fd: int) -> bool:
        return fd in self._all or (self._listener is not None and fd == self._listener.fileno())

    def listen(self, dir_fd: int) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.unlink(NAME, dir_fd=dir_fd)
        except OSError:
            pass
        try:  # by way of the folder's descriptor: its path may be longer than a socket's name can be
            listener.bind(f"/proc/self/fd/{dir_fd}/{NAME}")
            listener.listen(CLIENTS_MAX)
        except OSError as error:
            listener.close()
            self._facts.add("no-socket", error=str(error))
            return
        listener.setblocking(False)
        self._listener = listener
        self._poll.register(listener, select.POLLIN)

    def add(self, channel: socket.socket, pid: int = 0) -> None:
        channel.setblocking(False)
        self._all[channel.fileno()] = _Client(channel, pid)
        self._poll.register(channel, select.POLLIN)

    def tell(self, line: bytes) -> None:
        for fd, client in list(self._all.items()):
            if client.follows:
                self._give(fd, line)

    def ready(self, fd: int) -> None:
        if fd in self._all:
            self._serve(fd)
        else:
            self._accept()

    def serve_all(self) -> None:
        """Carries out what all clients have sent so far."""
        for fd in list(self._all):
            if fd in self._all:
                self._serve(fd)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            channel, _ = self._listener.accept()
        except OSError:
            return
        packed = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, uid, _ = CREDENTIALS.unpack(packed)
        if uid not in (os.getuid(), 0) or len(self._all) >= CLIENTS_MAX:
            channel.close()
        else:
            self.add(channel, pid)

    def _drop(self, fd: int) -> None:
        client = self._all.pop(fd)
        self._poll.unregister(fd)
        client.channel.close()

    def _give(self, fd: int, data: bytes) -> None:
        """Sends data to a client without waiting. A client that does not read is disconnected."""
        self._all[fd].unsent += data
        self._flush(fd)

    def _flush(self, fd: int) -> None:
        client = self._all[fd]
        try:
            client.unsent = client.unsent[client.channel.send(client.unsent) :]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            # It has closed. Its last requests are still to be read; the end of the stream behind them drops it.
            client.unsent, client.follows = b"", False
        except OSError:
            return self._drop(fd)
        if len(client.unsent) > OUT_BYTES_MAX:
            return self._drop(fd)
        self._poll.modify(fd, select.POLLIN | (select.POLLOUT if client.unsent else 0))

    def _serve(self, fd: int) -> None:
        client = self._all[fd]
        if client.unsent:
            self._flush(fd)
        if fd not in self._all:
            return
        try:
            data = client.channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, client.unread = (client.unread + data).split(b"\n")
        for line in lines:
            self._take(fd, line)
        if (not data or len(client.unread) > IN_BYTES_MAX) and fd in self._all:
            self._drop(fd)

    def _take(self, fd: int, line: bytes) -> None:
        try:
            wish = json.loads(line)
            if wish["do"] == "join":
                number = self._joined(self._all[fd].pid, wish)
                self._give(fd, json.dumps({"rank": number}).encode() + b"\n")
            elif wish["do"] != "follow":
                self._obey(wish)
            elif fd in self._all:
                self._all[fd].follows = True
                self._give(fd, b"".join(self._facts.lines[int(wish.get("from", 0)) :]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return  # invalid input of a client is ignored

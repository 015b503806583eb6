"""Wraps a non-blocking socket and its send queue."""

import select
import socket

READ_BYTES = 1 << 16
SEND_BYTES_MAX = 1 << 18


class WireClosed(Exception):
    """Raised when the connection is closed; the message gives the reason."""


class Wire:
    """A non-blocking socket and its send queue. `tls_wire.TlsWire` is one with TLS."""

    def __init__(self, sock: socket.socket) -> None:
        self.fileno = sock.fileno()
        self.has_more = False  # data is left to read that the descriptor does not show
        self._sock = sock
        self._out = bytearray()

    @property
    def waiting_bytes(self) -> int:
        return len(self._out)

    @property
    def mask(self) -> int:
        """Returns the epoll events to wait for on the socket."""
        return select.EPOLLIN | (select.EPOLLOUT if self._wants_to_write() else 0)

    def read(self, bytes_max: int) -> bytes:
        """Returns the data that has arrived; empty if none. raises: WireClosed"""
        parts: list[bytes] = []
        got = 0
        self.has_more = False
        try:
            while got < bytes_max and (data := self._received()) is not None:
                if not data:
                    if not parts:
                        raise WireClosed("the other side has closed the connection")
                    self.has_more = True  # the next call reports the end
                    break
                parts.append(data)
                got += len(data)
                if self._was_all(data):
                    break
        except OSError as error:
            if not parts:
                raise WireClosed(self._words(error)) from error
            self.has_more = True
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def write(self, data: bytes) -> None:
        """Sends data; queues what cannot be sent now. raises: WireClosed"""
        self._out += data
        self.flush()

    def put(self, data: bytes) -> None:
        """Queues data for the next flush()."""
        self._out += data

    def flush(self) -> None:
        """Sends queued data as far as the socket accepts it. raises: WireClosed"""
        try:
            while self._out:
                with memoryview(self._out) as whole, whole[:SEND_BYTES_MAX] as part:
                    sent = self._sent(part)
                if not sent:
                    return
                del self._out[:sent]
        except OSError as error:
            raise WireClosed(self._words(error)) from error

    def close(self) -> None:
        try:
            self._sock.close()
        except OSError:
            pass

    @property
    def local_address(self) -> str:
        try:
            return str(self._sock.getsockname()[0])
        except OSError:
            return ""

    def _wants_to_write(self) -> bool:
        return bool(self._out)

    def _received(self) -> bytes | None:
        """Returns data that has arrived: b"" at the end of the connection, None if there is none yet. raises: OSError"""
        try:
            return self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return None

    def _was_all(self, data: bytes) -> bool:
        """Returns whether nothing else had arrived when `data` was received."""
        return len(data) < READ_BYTES

    def _sent(self, part: memoryview) -> int:
        """Returns how many bytes the socket accepts now; 0 for none. raises: OSError"""
        try:
            return self._sock.send(part)
        except BlockingIOError:
            return 0

    def _words(self, error: OSError) -> str:
        return error.strerror or str(error) or type(error).__name__

"""Wraps a non-blocking socket, with or without TLS, and its send queue."""

import select
import socket
import ssl
from hashlib import sha256

READ_BYTES = 1 << 16
SEND_BYTES_MAX = 1 << 18


class WireClosed(Exception):
    """Raised when the connection is closed; the message gives the reason."""


class Wire:
    """A non-blocking socket, with or without TLS, and its send queue.

    `pin`: SHA-256 of the other side's certificate.
    """

    def __init__(self, sock: socket.socket, *, is_tls: bool = False, pin: bytes | None = None) -> None:
        self.fileno = sock.fileno()
        self.has_more = False  # data is left to read that the descriptor does not show
        self._sock = sock
        self._pin = pin
        self._out = bytearray()
        self._handshaking = is_tls
        self._wants_write = False

    @property
    def waiting_bytes(self) -> int:
        return len(self._out)

    @property
    def mask(self) -> int:
        """Returns the epoll events to wait for on the socket."""
        writes = self._wants_write or (self._out and not self._handshaking)
        return select.EPOLLIN | (select.EPOLLOUT if writes else 0)

    def read(self, bytes_max: int) -> bytes:
        """Returns the data that has arrived; empty if none. raises: WireClosed"""
        parts: list[bytes] = []
        got = 0
        self.has_more = self._wants_write = False
        try:
            if self._handshaking and not self._shaken():
                return b""
            while got < bytes_max:
                data = self._sock.recv(READ_BYTES)
                if not data:
                    if not parts:
                        raise WireClosed("the other side has closed the connection")
                    self.has_more = True  # the next call reports the end
                    break
                parts.append(data)
                got += len(data)
                if len(data) < READ_BYTES and not isinstance(self._sock, ssl.SSLSocket):
                    break
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except ssl.SSLWantWriteError:
            self._wants_write = True
        except OSError as error:
            if not parts:
                raise WireClosed(_words(error)) from error
            self.has_more = True
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
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
        if not self._out and not self._handshaking:
            return
        self._wants_write = False
        try:
            if self._handshaking and not self._shaken():
                return
            while self._out:
                with memoryview(self._out) as whole, whole[:SEND_BYTES_MAX] as part:
                    sent = self._sock.send(part)
                del self._out[:sent]
        except (BlockingIOError, ssl.SSLWantWriteError):
            pass
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            raise WireClosed(_words(error)) from error

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

    def _shaken(self) -> bool:
        """Continues the TLS handshake. Returns whether it is done. raises: WireClosed, OSError"""
        assert isinstance(self._sock, ssl.SSLSocket)
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self._wants_write = True
            return False
        if self._pin is not None:
            shown = self._sock.getpeercert(binary_form=True) or b""
            if sha256(shown).digest() != self._pin:
                raise WireClosed(
                    f"the certificate of the peer is not the pinned one: SHA-256 {sha256(shown).hexdigest()} "
                    f"instead of {self._pin.hex()}"
                )
        self._handshaking = False
        return True


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return error.strerror or str(error) or type(error).__name__

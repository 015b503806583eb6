"""Wraps a non-blocking socket with TLS, whose certificate is pinned by its SHA-256.

Imported only where TLS is enabled (`tls.py`): the ssl module takes a twentieth of an agent's start.
"""

import socket
import ssl
from collections.abc import Callable
from hashlib import sha256

from holdfast.link.tls import ClientTls, ServerTls, TlsUnavailable
from holdfast.link.wire import READ_BYTES, Wire, WireClosed


class TlsWire(Wire):
    """A non-blocking socket with TLS and its send queue. Continues the handshake whenever it is read or flushed.

    `pin`: SHA-256 of the other side's certificate; None: any is accepted.
    """

    _sock: ssl.SSLSocket

    def __init__(self, sock: ssl.SSLSocket, pin: bytes | None = None) -> None:
        super().__init__(sock)
        self._pin = pin
        self._handshaking = True
        self._wants_write = False

    def read(self, bytes_max: int) -> bytes:
        self._wants_write = False
        data = super().read(bytes_max)
        if self._sock.pending():
            self.has_more = True
        return data

    def flush(self) -> None:
        self._wants_write = False
        if self._handshaking:
            try:
                self._shake()
            except OSError as error:
                raise WireClosed(self._words(error)) from error
        super().flush()

    def _wants_to_write(self) -> bool:
        return self._wants_write or (bool(self._out) and not self._handshaking)

    def _received(self) -> bytes | None:
        if self._handshaking and not self._shake():
            return None
        try:
            return self._sock.recv(READ_BYTES)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLWantWriteError:
            self._wants_write = True
            return None

    def _was_all(self, data: bytes) -> bool:
        return False  # a record may be shorter than what has arrived

    def _sent(self, part: memoryview) -> int:
        if self._handshaking:
            return 0
        try:
            return self._sock.send(part)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def _shake(self) -> bool:
        """Continues the TLS handshake. Returns whether it is done. raises: WireClosed, OSError"""
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

    def _words(self, error: OSError) -> str:
        return (
            f"TLS failed: {error.reason or error}"
            if isinstance(error, ssl.SSLError)
            else super()._words(error)
        )


def fingerprint(certificate: str) -> str:
    """Returns the SHA-256 of a certificate, given in PEM, as 64 hexadecimal digits. raises: ValueError"""
    return sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()


def client_wires(tls: ClientTls) -> Callable[[socket.socket], Wire]:
    """Returns what wraps a client's connected sockets. It raises OSError.

    The context verifies nothing: the certificate is checked by its fingerprint after the handshake.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    pin = bytes.fromhex(tls.fingerprint)
    return lambda sock: TlsWire(context.wrap_socket(sock, do_handshake_on_connect=False), pin)


def server_wires(tls: ServerTls) -> Callable[[socket.socket], Wire]:
    """Returns what wraps the connections that a controller with this certificate accepts. It raises OSError.

    raises: TlsUnavailable
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # among them those of TLS
        raise TlsUnavailable(f"the certificate {tls.certificate} cannot be used: {error}") from error
    return lambda sock: TlsWire(context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False))

"""Sets up TLS with a self-signed certificate of the job, pinned by its SHA-256: without authorities or host
names.
"""

import importlib
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast.link.wire import Wire

OPENSSL_LIMIT_S = 20.0
_DAYS = 3650


class TlsUnavailable(Exception):
    """Raised when no certificate can be created, or the existing one cannot be used.

    The message says what to do.
    """


class ClientTls(Struct, frozen=True):
    """The client's settings for TLS. `fingerprint`: SHA-256 of the controller's certificate, 64 hexadecimal
    digits.
    """

    fingerprint: str


class ServerTls(Struct, frozen=True):
    """The PEM files of the controller's certificate and of its private key, which is not encrypted."""

    certificate: Path
    key: Path

    @property
    def fingerprint(self) -> str:
        """Returns the SHA-256 of the certificate as 64 hexadecimal digits. raises: TlsUnavailable"""
        try:
            return str(_with_tls().fingerprint(self.certificate.read_text()))
        except (OSError, ValueError) as error:
            raise TlsUnavailable(f"the certificate {self.certificate} cannot be read: {error}") from error


def make_certificate(folder: Path) -> ServerTls:
    """Returns the key and certificate in the folder; creates them if missing: a P-256 key, self-signed.

    Takes a fraction of a second. raises: TlsUnavailable
    source: openssl-req(1)
    """
    made = ServerTls(folder / "tls.crt", folder / "tls.key")
    if made.certificate.exists() and made.key.exists():
        return made
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", str(_DAYS), "-subj", "/CN=holdfast", "-keyout", str(made.key)]
    command += ["-out", str(made.certificate)]
    advice = "install the openssl tool, or disable TLS (--no-link-tls)"
    try:
        made.key.touch(mode=0o600)
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=OPENSSL_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        with suppress(OSError):  # a key alone is useless, and the job's name may be used again
            made.key.unlink(missing_ok=True)
        if isinstance(error, subprocess.CalledProcessError):
            raise TlsUnavailable(f"openssl could not create a certificate: {error.stderr[-300:]}") from error
        raise TlsUnavailable(f"no certificate could be created: {error}; {advice}") from error
    return made


def client_wires(tls: ClientTls | None) -> Callable[[socket.socket], Wire]:
    """Returns what wraps a client's connected sockets, without TLS for None. It raises OSError."""
    return Wire if tls is None else _with_tls().client_wires(tls)


def server_wires(tls: ServerTls | None) -> Callable[[socket.socket], Wire]:
    """Returns what wraps the connections that a controller accepts, without TLS for None. It raises OSError.

    raises: TlsUnavailable
    """
    return Wire if tls is None else _with_tls().server_wires(tls)


def _with_tls() -> Any:
    return importlib.import_module("holdfast.link.tls_wire")

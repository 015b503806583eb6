"""TLS with a certificate made for the job and pinned by its SHA-256: no authority, no host names."""

import ssl
import subprocess
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

OPENSSL_LIMIT_S = 20.0
_DAYS = 3650


class TlsUnavailable(Exception):
    """No certificate can be made, or the existing one cannot be used. The message says what to do."""


class ClientTls(Struct, frozen=True):
    """`fingerprint`: SHA-256 of the controller's certificate, 64 hex digits."""

    fingerprint: str


class ServerTls(Struct, frozen=True):
    """Files in PEM. The key is not encrypted."""

    certificate: Path
    key: Path

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, 64 hex digits. raises: TlsUnavailable"""
        try:
            return sha256(ssl.PEM_cert_to_DER_cert(self.certificate.read_text())).hexdigest()
        except (OSError, ValueError) as error:
            raise TlsUnavailable(f"the certificate {self.certificate} cannot be read: {error}") from error


def make_certificate(folder: Path) -> ServerTls:
    """Those of the folder, made if they are not there: a P-256 key and a certificate that it signed itself.

    Takes a moment. raises: TlsUnavailable
    source: openssl-req(1)
    """
    made = ServerTls(folder / "tls.crt", folder / "tls.key")
    if made.certificate.exists() and made.key.exists():
        return made
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", str(_DAYS), "-subj", "/CN=holdfast", "-keyout", str(made.key)]
    command += ["-out", str(made.certificate)]
    advice = "install the openssl tool, or do without TLS (--no-link-tls)"
    try:
        made.key.touch(mode=0o600)
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=OPENSSL_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        with suppress(OSError):  # a key alone is useless, and the job's name may be used again
            made.key.unlink(missing_ok=True)
        if isinstance(error, subprocess.CalledProcessError):
            raise TlsUnavailable(f"openssl could not make a certificate: {error.stderr[-300:]}") from error
        raise TlsUnavailable(f"no certificate could be made: {error}; {advice}") from error
    return made


def client_context() -> ssl.SSLContext:
    """Certificates are checked by their fingerprint alone, once the handshake is done (wire.py)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """raises: TlsUnavailable"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise TlsUnavailable(f"the certificate {tls.certificate} cannot be used: {error}") from error
    return context

"""Authenticates both sides with the job's secret, without sending it. Pure.

    agent       controller
      ── preamble ──►          "HFLK", protocol u16, zeros u16, nonce 32
      ◄── preamble, PROOF ──   HMAC(secret, "controller" + both preambles)
      ── PROOF, JOIN… ──►      HMAC(secret, "agent" + both preambles); from here on every frame has its MAC

The preamble is the same in every protocol version, so that two versions recognize each other. Both nonces are
in every proof and in the session's keys, so nothing of an earlier connection can be replayed. Instead of a
PROOF, either side may send REFUSE with a sentence for users; it is not authenticated, and only ends the
connection.
"""

import hmac
import struct
from typing import Protocol

from msgspec import Struct

from holdfast.link.frames import HEADER, PROOF, REFUSE, plain

NONCE_BYTES = 32
TELL_BYTES_MAX = 400
_PREAMBLE = struct.Struct("!4sHH32s")
_MAGIC = b"HFLK"
_PROOF_BYTES = 32
_TLS_HANDSHAKE = 0x16  # the first byte of a TLS connection (RFC 8446, 5.1: content type of a record)
WRONG_SECRET = "the peer does not have this job's secret"


class Keys(Struct, frozen=True):
    """The keys of one session: `ours` authenticates sent frames, `theirs` received ones."""

    ours: bytes
    theirs: bytes


class Step(Struct, frozen=True):
    """The result of processing handshake data: the bytes to send now, and the outcome.

    `keys`: None until the handshake is done. `rest`: data that follows the handshake.
    """

    send: bytes = b""
    keys: Keys | None = None
    rest: bytes = b""


class Refusal(Exception):
    """Raised when the handshake failed. `tell`: bytes to send before the connection is closed."""

    def __init__(self, why: str, tell: bytes = b"") -> None:
        super().__init__(why)
        self.tell = tell


class Handshake(Protocol):
    """One side of a handshake; it processes bytes and has no socket."""

    def begin(self) -> bytes: ...

    def feed(self, data: bytes) -> Step:
        """Processes received bytes. raises: Refusal"""


class AgentSide:
    """The agent's or client's side of a handshake. `nonce`: 32 random bytes."""

    def __init__(self, secret: bytes, nonce: bytes, protocol: int) -> None:
        self._secret = secret
        self._ours = _PREAMBLE.pack(_MAGIC, protocol, 0, nonce)
        self._protocol = protocol
        self._buffer = b""

    def begin(self) -> bytes:
        return self._ours

    def feed(self, data: bytes) -> Step:
        self._buffer += data
        if len(self._buffer) < _PREAMBLE.size:
            _check_begin(self._buffer)
            return Step()
        theirs = self._buffer[: _PREAMBLE.size]
        protocol = _protocol_of(theirs)
        if protocol != self._protocol:
            raise Refusal(
                f"the controller speaks protocol {protocol} and this agent protocol {self._protocol}: "
                "install the same version of Holdfast on both sides"
            )
        taken = _proof(self._buffer[_PREAMBLE.size :])
        if taken is None:
            return Step()
        proof, rest = taken
        if not hmac.compare_digest(proof, _said(self._secret, b"controller", self._ours + theirs)):
            raise Refusal(
                "the process at this address does not have this job's secret, or ours is that of another job",
                plain(REFUSE, b"the secrets of the two sides differ"),
            )
        both = self._ours + theirs
        answer = plain(PROOF, _said(self._secret, b"agent", both))
        keys = Keys(_said(self._secret, b"key up", both), _said(self._secret, b"key down", both))
        return Step(answer, keys, rest)


class ControllerSide:
    """The controller's side of a handshake. `nonce`: 32 random bytes."""

    def __init__(self, secret: bytes, nonce: bytes, protocol: int) -> None:
        self._secret = secret
        self._ours = _PREAMBLE.pack(_MAGIC, protocol, 0, nonce)
        self._protocol = protocol
        self._buffer = b""
        self._theirs = b""

    def begin(self) -> bytes:
        return b""

    def feed(self, data: bytes) -> Step:
        self._buffer += data
        answer = b""
        if not self._theirs:
            if len(self._buffer) < _PREAMBLE.size:
                _check_begin(self._buffer)
                return Step()
            answer = self._answered()
        taken = _proof(self._buffer)
        if taken is None:
            return Step(answer)
        proof, rest = taken
        both = self._theirs + self._ours
        if not hmac.compare_digest(proof, _said(self._secret, b"agent", both)):
            raise Refusal(WRONG_SECRET, answer + plain(REFUSE, b"wrong secret"))
        keys = Keys(_said(self._secret, b"key down", both), _said(self._secret, b"key up", both))
        return Step(answer, keys, rest)

    def _answered(self) -> bytes:
        theirs, self._buffer = self._buffer[: _PREAMBLE.size], self._buffer[_PREAMBLE.size :]
        protocol = _protocol_of(theirs)
        if protocol != self._protocol:
            why = f"the peer speaks protocol {protocol} and this controller protocol {self._protocol}"
            raise Refusal(why, self.refused(why))
        self._theirs = theirs
        return self._ours + plain(PROOF, _said(self._secret, b"controller", theirs + self._ours))

    def refused(self, why: str) -> bytes:
        """Returns the REFUSE frame, with the reason, for a peer that is not authenticated yet."""
        return self._ours + plain(REFUSE, why.encode()[:TELL_BYTES_MAX])


def _check_begin(data: bytes) -> None:
    """Checks that the data begins with the preamble. raises: Refusal at the first wrong byte

    It does not wait for a whole preamble: a peer of another protocol may send no more and wait for an answer.
    """
    if _MAGIC.startswith(data[: len(_MAGIC)]):
        return
    if data[0] == _TLS_HANDSHAKE:
        raise Refusal("the peer uses TLS, and this link does not")
    raise Refusal(f"the peer does not use Holdfast's protocol: its data begins with {data[:16]!r}")


def _protocol_of(preamble: bytes) -> int:
    _check_begin(preamble)
    protocol: int = _PREAMBLE.unpack(preamble)[1]
    return protocol


def _proof(data: bytes) -> tuple[bytes, bytes] | None:
    """Returns the proof at the beginning of `data`, and the rest; None if it is incomplete.

    raises: Refusal
    """
    if len(data) < HEADER.size:
        return None
    length, kind = HEADER.unpack_from(data)
    if kind == REFUSE and length <= TELL_BYTES_MAX:
        if len(data) < HEADER.size + length:
            return None
        text = data[HEADER.size : HEADER.size + length].decode("utf-8", "replace")
        raise Refusal(f"it says: {''.join(c if c.isprintable() else '?' for c in text)}")
    if kind != PROOF or length != _PROOF_BYTES:
        raise Refusal(
            f"expected a proof of {_PROOF_BYTES} bytes, received a frame of kind {kind} with {length} bytes"
        )
    end = HEADER.size + _PROOF_BYTES
    return (data[HEADER.size : end], data[end:]) if len(data) >= end else None


def _said(secret: bytes, what: bytes, both: bytes) -> bytes:
    return hmac.digest(secret, b"holdfast link " + what + b"\0" + both, "sha256")

"""Packs and unpacks the bodies of frames. No sockets.

What comes often is packed by hand, numbers in network order; the rest is MessagePack. Fields may be added at the end
of a MessagePack body without a new protocol.
"""

import struct

import msgspec
from msgspec import Struct

from holdfast.link.frames import BadFrame

_ENTRY = struct.Struct("!QB")
_BEAT = struct.Struct("!ddd")
_ACK = struct.Struct("!QQ")
ENTRY_OVERHEAD_BYTES = _ENTRY.size
NAME_CHARACTERS_MAX = 200


class Join(Struct, frozen=True, array_like=True):
    """The first authenticated frame of an agent. `instance`: identifies its process; a restarted agent has another."""

    name: str
    role: str
    stream: str
    instance: str
    hello: bytes


class Welcome(Struct, frozen=True, array_like=True):
    """The answer to Join: where the stream continues."""

    received: int
    recorded: int


class OrderBody(Struct, frozen=True, array_like=True):
    id: str
    body: bytes


class Beat(Struct, frozen=True):
    """`sent_s`: the sender's clock. `echo_s`: the time of the last beat it received, `held_s` ago; NaN: none."""

    sent_s: float
    echo_s: float
    held_s: float


_join = msgspec.msgpack.Decoder(Join)
_welcome = msgspec.msgpack.Decoder(Welcome)
_order = msgspec.msgpack.Decoder(OrderBody)
pack = msgspec.msgpack.encode
# What msgspec decoders raise; invalid UTF-8 and deep nesting raise Python's own errors.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def entry(seq: int, body: bytes, drop: bool) -> bytes:
    return _ENTRY.pack(seq, drop) + body


def as_entry(body: bytes) -> tuple[int, bool, bytes]:
    """Sequence number, whether it may be dropped, body. raises: BadFrame"""
    if len(body) < _ENTRY.size:
        raise BadFrame(f"an entry of {len(body)} bytes")
    seq, drop = _ENTRY.unpack_from(body)
    return seq, bool(drop), body[_ENTRY.size :]


def beat(beat: Beat) -> bytes:
    return _BEAT.pack(beat.sent_s, beat.echo_s, beat.held_s)


def as_beat(body: bytes) -> tuple[Beat, bytes]:
    """The beat and what follows it. raises: BadFrame"""
    if len(body) < _BEAT.size:
        raise BadFrame(f"a beat of {len(body)} bytes")
    return Beat(*_BEAT.unpack_from(body)), body[_BEAT.size :]


def ack(received: int, recorded: int) -> bytes:
    return _ACK.pack(received, recorded)


def as_ack(body: bytes) -> tuple[int, int]:
    """Two sequence numbers: received, recorded. raises: BadFrame"""
    if len(body) != _ACK.size:
        raise BadFrame(f"an acknowledgement of {len(body)} bytes")
    received, recorded = _ACK.unpack(body)
    return received, recorded


def as_join(body: bytes) -> Join:
    """Parses a Join. raises: BadFrame"""
    try:
        join = _join.decode(body)
    except UNREADABLE as error:
        raise BadFrame(f"an invalid introduction: {error}") from error
    if not _is_name(join.name) or not _is_name(join.stream) or "/" in join.name:
        raise BadFrame(f"a peer of the name {join.name!r} and the stream {join.stream!r} is not taken")
    if not join.stream.startswith(join.name + "/"):
        raise BadFrame(f"{join.name!r} came with a stream that is not its own, {join.stream!r}")
    return join


def as_welcome(body: bytes) -> Welcome:
    """Parses a Welcome. raises: BadFrame"""
    try:
        return _welcome.decode(body)
    except UNREADABLE as error:
        raise BadFrame(f"a welcome that cannot be read: {error}") from error


def as_order(body: bytes) -> OrderBody:
    """Parses an order. raises: BadFrame"""
    try:
        return _order.decode(body)
    except UNREADABLE as error:
        raise BadFrame(f"an order that cannot be read: {error}") from error


def as_text(body: bytes) -> str:
    """A sentence or an id from the other side, safe to print. Raises nothing."""
    return "".join(c if c.isprintable() else "?" for c in body.decode("utf-8", "replace"))


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()

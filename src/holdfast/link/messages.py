"""Encodes and decodes the bodies of frames. Pure.

Frequent bodies are packed as structs, numbers in network order; the others are MessagePack. Fields may be
added at the end of a MessagePack body without a new protocol version.
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
    """The first authenticated frame of an agent or client, by which it identifies itself.

    `stream`: the id of its stream of entries. `instance`: identifies its process; a restarted agent has
    another.
    """

    name: str
    role: str
    stream: str
    instance: str
    hello: bytes


class Welcome(Struct, frozen=True, array_like=True):
    """The controller's answer to Join: the numbers of the last entries it has received and recorded."""

    received: int
    recorded: int


class OrderBody(Struct, frozen=True, array_like=True):
    """The body of an ORDER frame: an order's id and its content."""

    id: str
    body: bytes


class Beat(Struct, frozen=True):
    """A heartbeat.

    `sent_s`: the sender's clock. `echo_s`: `sent_s` of the last beat it received, `held_s` seconds ago.

    Both are NaN if it has received none.
    """

    sent_s: float
    echo_s: float
    held_s: float


_join = msgspec.msgpack.Decoder(Join)
_welcome = msgspec.msgpack.Decoder(Welcome)
_order = msgspec.msgpack.Decoder(OrderBody)
pack = msgspec.msgpack.encode
# The exceptions of msgspec decoders; invalid UTF-8 and deep nesting raise built-in ones.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def entry(seq: int, body: bytes, drop: bool) -> bytes:
    """Encodes an entry. `drop`: it may be dropped."""
    return _ENTRY.pack(seq, drop) + body


def as_entry(body: bytes) -> tuple[int, bool, bytes]:
    """Decodes an entry: sequence number, whether it may be dropped, body. raises: BadFrame"""
    if len(body) < _ENTRY.size:
        raise BadFrame(f"an entry of {len(body)} bytes")
    seq, drop = _ENTRY.unpack_from(body)
    return seq, bool(drop), body[_ENTRY.size :]


def beat(beat: Beat) -> bytes:
    """Encodes a heartbeat."""
    return _BEAT.pack(beat.sent_s, beat.echo_s, beat.held_s)


def as_beat(body: bytes) -> tuple[Beat, bytes]:
    """Decodes a beat, and returns it with the bytes that follow it. raises: BadFrame"""
    if len(body) < _BEAT.size:
        raise BadFrame(f"a beat of {len(body)} bytes")
    return Beat(*_BEAT.unpack_from(body)), body[_BEAT.size :]


def ack(received: int, recorded: int) -> bytes:
    """Encodes an acknowledgement of the last received and the last recorded entry."""
    return _ACK.pack(received, recorded)


def as_ack(body: bytes) -> tuple[int, int]:
    """Decodes an acknowledgement: the numbers of the last received and the last recorded entry.

    raises: BadFrame
    """
    if len(body) != _ACK.size:
        raise BadFrame(f"an acknowledgement of {len(body)} bytes")
    received, recorded = _ACK.unpack(body)
    return received, recorded


def as_join(body: bytes) -> Join:
    """Parses a Join. raises: BadFrame"""
    try:
        join = _join.decode(body)
    except UNREADABLE as error:
        raise BadFrame(f"an invalid join: {error}") from error
    if not _is_name(join.name) or not _is_name(join.stream) or "/" in join.name:
        raise BadFrame(f"a peer with the name {join.name!r} and the stream {join.stream!r} is not accepted")
    if not join.stream.startswith(join.name + "/"):
        raise BadFrame(f"{join.name!r} sent the stream of another peer, {join.stream!r}")
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
    """Decodes a sentence or an id from the other side, with unprintable characters replaced.

    Raises nothing.
    """
    return "".join(c if c.isprintable() else "?" for c in body.decode("utf-8", "replace"))


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()

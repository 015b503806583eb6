"""Encodes and decodes the call messages of model.calls. Pure."""

import msgspec

from holdfast.model.calls import AnyCallWord

_SIGN = b"\xa4kind"  # MessagePack for the key that every word has, and the first one of its map
_TAG = b"call-"
_WORDS: msgspec.msgpack.Decoder[AnyCallWord] = msgspec.msgpack.Decoder(AnyCallWord)
encode = msgspec.msgpack.Encoder().encode


def is_call_word(body: bytes) -> bool:
    """True for a call message, of any version: `\x83\xa4kind\xabcall-typed...`, one byte before the tag."""
    return body[1:6] == _SIGN and body[7:12] == _TAG


def decode(body: bytes) -> AnyCallWord | None:
    """The message; None if it is none, or from a version that cannot be read."""
    if not is_call_word(body):
        return None
    try:
        return _WORDS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None

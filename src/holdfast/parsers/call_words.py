"""Encodes and decodes the call messages of model.calls. Pure."""

import msgspec

from holdfast.model.calls import AnyCallWord

_SIGN = b"\xa4kind"  # MessagePack for the key that every word has, and the first one of its map
_TAG = b"call-"
_WORDS: msgspec.msgpack.Decoder[AnyCallWord] = msgspec.msgpack.Decoder(AnyCallWord)
encode = msgspec.msgpack.Encoder().encode


def is_call_word(body: bytes) -> bool:
    """Whether it is one, of this version or another: `\\x83\\xa4kind\\xabcall-typed...`, one byte before the tag."""
    return body[1:6] == _SIGN and body[7:12] == _TAG


def decode(body: bytes) -> AnyCallWord | None:
    """None for what is no such word, or one of another version that this one cannot read."""
    if not is_call_word(body):
        return None
    try:
        return _WORDS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None

"""Encodes and decodes the call messages of model.calls. Pure."""

import msgspec

from holdfast.model.calls import AnyCallWord

_SIGN = b"\xa4kind"  # MessagePack for the key `kind`, the first one in the map of every message
_TAG = b"call-"
_WORDS: msgspec.msgpack.Decoder[AnyCallWord] = msgspec.msgpack.Decoder(AnyCallWord)
encode = msgspec.msgpack.Encoder().encode


def is_call_word(body: bytes) -> bool:
    r"""Returns whether the bytes are a call message of any version, that is, begin like
    `\x83\xa4kind\xabcall-typed...`.
    """
    return body[1:6] == _SIGN and body[7:12] == _TAG


def decode(body: bytes) -> AnyCallWord | None:
    """Returns the message; None if this is no call message, or of a version that cannot be decoded."""
    if not is_call_word(body):
        return None
    try:
        return _WORDS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None

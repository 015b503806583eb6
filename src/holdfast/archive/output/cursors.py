"""Encodes and decodes cursors: the offsets in several files at which a page ends and the next begins.

Pure.
"""

import base64
import binascii

import msgspec
from msgspec import Struct

CURSOR_CHARS_MAX = 16_384


class BadCursor(ValueError):
    """Error: the text is not a valid cursor. The message says why."""


class Places(Struct, frozen=True, array_like=True):
    """Offsets by file name. Names are relative to the job's folder."""

    offsets: dict[str, int]


def written(places: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(Places(places))).decode().rstrip("=")


def read(cursor: str) -> dict[str, int]:
    """Decodes a cursor and returns the offset in each file. Raises BadCursor."""
    if len(cursor) > CURSOR_CHARS_MAX:
        raise BadCursor(f"the cursor has {len(cursor)} characters, at most {CURSOR_CHARS_MAX} are allowed")
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        places = msgspec.msgpack.decode(raw, type=Places).offsets
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise BadCursor("this server did not issue the cursor: start without it") from error
    if any(offset < 0 for offset in places.values()):
        raise BadCursor("the cursor has a negative offset: start without it")
    return places

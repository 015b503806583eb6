"""Writes and reads cursors: where a page of a list goes on. Opaque to who uses them, and checked when they come back."""

import base64
import binascii
from typing import TypeVar

import msgspec

from holdfast.web.refusals import bad_request

Place = TypeVar("Place")


def written(place: object) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).decode().rstrip("=")


def read(cursor: str, kind: type[Place]) -> Place:
    """raises: Refusal"""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(raw, type=kind)
    except (binascii.Error, ValueError, RecursionError) as error:
        raise bad_request("this cursor is none of this list: begin with the first page") from error

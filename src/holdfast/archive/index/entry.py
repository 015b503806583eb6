"""Defines what the index keeps of one job: its rows, where its journal was read to, and the text that searches look in. Pure."""

import base64
import binascii
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from holdfast.model.documents.jobs import IncidentRow, JobRow

SEARCH_CHARACTERS_MAX = 4_000
PIECE_CHARACTERS_MAX = 1_000  # of one text in it: a long command must not displace the first error
TERMS_MAX = 8
LABELS_MAX, LABEL_CHARACTERS_MAX = 64, 256
NODES_MAX = 20_000


class BadCursor(ValueError):
    """The cursor is none that a page named."""


class Position(Struct, frozen=True, kw_only=True):
    """How far a journal was read. `device`, `inode`: of its file. `seq`, `chain`: of the last entry that was read.

    `stamp`: sizes and times of its files just before the reading. `trouble`: why it was not read to its end.
    `kept`: a replay's state after entry `kept_seq`, from which the next one goes on; empty: it begins anew.
    """

    device: int = 0
    inode: int = 0
    seq: int = 0
    chain: int = 0
    stamp: str = ""
    trouble: str = ""
    kept_seq: int = 0
    kept_chain: int = 0
    kept: bytes = b""


class JobEntry(Struct, frozen=True, kw_only=True):
    """One job in the index. `live`: its state may change without a new entry. `nodes`: of all its attempts."""

    row: JobRow
    position: Position
    live: bool
    incidents: tuple[IncidentRow, ...] = ()
    nodes: tuple[str, ...] = ()
    search: str = ""


def searchable(texts: Iterable[str]) -> str:
    """The texts as one, folded as searches are: without differences of case and without characters that no database keeps."""
    pieces = (storable(text[:PIECE_CHARACTERS_MAX]).casefold() for text in texts if text)
    return "\n".join(dict.fromkeys(pieces))[:SEARCH_CHARACTERS_MAX]


def search_terms(search: str) -> list[str]:
    """All of them must be in a job's text."""
    return searchable([search]).split()[:TERMS_MAX]


def storable(text: str) -> str:
    """The text without what PostgreSQL refuses: zero bytes, and lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def cursor_of(*place: float | int | str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place_of(cursor: str, number: type[float] | type[int]) -> tuple[float, str]:
    """raises: BadCursor"""
    try:
        packed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        at, name = msgspec.json.decode(packed, type=tuple[number, str])  # type: ignore[valid-type]
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise BadCursor("the cursor is not one of this server: begin at the first page") from error
    return at, storable(name)

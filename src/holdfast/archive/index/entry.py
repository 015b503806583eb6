"""Defines the index entry of one job: its rows, its position in the journal, and its search text. Pure."""

import base64
import binascii
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from holdfast.model.documents.jobs import IncidentRow, JobRow

SEARCH_CHARACTERS_MAX = 4_000
PIECE_CHARACTERS_MAX = 1_000  # limit per text, so that a long command does not displace the first error
TERMS_MAX = 8
LABELS_MAX, LABEL_CHARACTERS_MAX = 64, 256
NODES_MAX = 20_000


class BadCursor(ValueError):
    """Error: the cursor was not issued by this server."""


class Position(Struct, frozen=True, kw_only=True):
    """How far a job's journal was read into the index.

    `device`, `inode`: of the journal file. `seq`, `chain`: number and checksum of the last entry read. `stamp`: sizes
    and times of the journal's files just before the read. `trouble`: why the journal was not read to its end. `kept`:
    state of the replay after entry `kept_seq`, from which the next read continues; if it is empty, the next read
    starts at the first entry.
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
    """One job in the index. `live`: the job's state can change without a new journal entry.

    `nodes`: nodes of all its attempts.
    """

    row: JobRow
    position: Position
    live: bool
    incidents: tuple[IncidentRow, ...] = ()
    nodes: tuple[str, ...] = ()
    search: str = ""


def searchable(texts: Iterable[str]) -> str:
    """Joins and case-folds texts for searches, without characters that databases reject."""
    pieces = (storable(text[:PIECE_CHARACTERS_MAX]).casefold() for text in texts if text)
    return "\n".join(dict.fromkeys(pieces))[:SEARCH_CHARACTERS_MAX]


def search_terms(search: str) -> list[str]:
    """Returns the case-folded terms of a search. A job matches if its text contains all of them."""
    return searchable([search]).split()[:TERMS_MAX]


def storable(text: str) -> str:
    """Removes what PostgreSQL rejects in a text: zero bytes and lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def cursor_of(*place: float | int | str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place_of(cursor: str, number: type[float] | type[int]) -> tuple[float, str]:
    """Returns the sort value and the name in a cursor. Raises BadCursor."""
    try:
        packed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        at, name = msgspec.json.decode(packed, type=tuple[number, str])  # type: ignore[valid-type]
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise BadCursor("this server did not issue the cursor: start at the first page") from error
    return at, storable(name)

"""Fits text into the columns of a terminal, where a Chinese character takes two. Prints nothing."""

import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells

ELLIPSIS = "…"
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60"
_OPENING, _CLOSING = "（【《“「(\\[", "，。、；：！？）】》”」,.;:!?)\\]"
# What stays together: a word; one wide character with the marks that may not begin a line, or end one.
_PIECE = re.compile(
    rf"\s+|[{_OPENING}]*(?:[{_WIDE}](?<![{_OPENING}])|[^\s{_WIDE}]+)[{_CLOSING}]*|[^\s]", re.UNICODE
)
# What a terminal would obey rather than show; tabs are given as spaces.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text: str) -> str:
    """Returns a text as one line without control characters, with tabs as spaces."""
    return _CONTROL.sub("\ufffd", text.expandtabs(4).replace("\n", " ").rstrip())


def cut(text: str, width: int) -> str:
    """Shortens a text to `width` columns, with an ellipsis at its end."""
    if cell_len(text) <= width:
        return text
    return chop_cells(text, max(1, width - 1))[0] + ELLIPSIS


def cut_left(text: str, width: int) -> str:
    """Shortens a text to `width` columns, with an ellipsis at its start, so that the end of a path stays."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - 1:
        text = text[1:]
    return ELLIPSIS + text


def wrapped(text: str, width: int) -> list[str]:
    """Splits a text into lines of at most `width` columns, between words or wide characters; longer words
    are split.
    """
    lines, line, used = [], "", 0
    for piece in _pieces(text, width):
        size = cell_len(piece)
        if line and used + size > width:
            lines.append(line.rstrip())
            line, used = "", 0
        if line or not piece.isspace():
            line, used = line + piece, used + size
    return [*lines, line.rstrip()] if line.strip() else lines


def _pieces(text: str, width: int) -> Iterator[str]:
    for found in _PIECE.finditer(text):
        piece = found.group()
        yield from chop_cells(piece, width) if cell_len(piece) > width and not piece.isspace() else (piece,)

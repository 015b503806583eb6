"""Rejoins lines that a terminal wrapped at its width, as in copied output. Pure.

A log counts as wrapped if several lines have the maximum width, most of these end inside a word, and the
following lines do not begin like other lines of the log. Rows of tables, rules and steps of equal length stay
unchanged.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

HEAD_BYTES = 64 << 10
WIDTH_MIN, WIDTH_MAX = 40, 400
FULL_MIN = 3  # lines of full width, with different words
WIDTHS = (80, 120, 132)  # usual widths of terminals, for which fewer lines are enough
MANY = 10
CUT_WORDS_MIN = 0.4  # minimum share of full lines that end inside a word
CUT_WORDS_OF_MANY = 0.15
ALIKE_MAX = 0.25  # maximum share of full lines whose next line begins like a line of the log
ALIKE_OF_MANY = 0.1
HEADS_MIN = 0.8  # minimum share of lines that begin like a line of a log
SHAPE_BYTES = 8
TABLE_PART = 0.8
# A line that has the full width by chance is followed by one that begins like a line of a log.
BEGINS = re.compile(
    rb"\s*(?:\[?\(?\d{4}[-/]\d\d[-/]\d\d|\[?\d\d:\d\d:\d\d|\[(?:rank|default)?\d+\]|<\d+>|\[ *\d+\.\d+\] |Traceback \(|File \""
    rb"|(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|[\w.]*(?:Error|Exception|Interrupt)(?::|$))"
)
STATEMENT = b" noticed that process rank "
BROKEN = re.compile(
    rb" noticed that process rank [^\n]{1,200}(?<![.)])(?=\n(?:with|on|exited|signal|\d+ \()\b)"
)
_LETTERS = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0" * 10 + b"a" * 26 + b"A" * 26
)


def width_of(head: bytes) -> int:
    """Returns the width in characters at which the lines were wrapped; 0 if they were not.

    `head`: start of the log, uncoloured.
    """
    lines = head[:HEAD_BYTES].split(b"\n")
    width = max(map(len if head.isascii() else _columns, lines))
    if not WIDTH_MIN <= width <= WIDTH_MAX:
        return 0
    if sum(_columns(line) == width for line in lines) >= TABLE_PART * sum(map(bool, lines)):
        return 0  # a table: rows of wrapped text would end with shorter lines
    reaching = [(line, after) for line, after in pairwise(lines) if len(line) >= width]
    full = [(line, after) for line, after in reaching if _columns(line) == width and _is_text(line)]
    if len(full) < (1 if width in WIDTHS else FULL_MIN):
        return 0  # the case of most logs
    after_full = {id(after) for _, after in full}
    heads = [BEGINS.match(line) is not None for line in lines if line and id(line) not in after_full]
    if sum(heads) >= HEADS_MIN * len(heads):  # in such a log, what has none goes on with the line before
        full = [(line, after) for line, after in full if not BEGINS.match(after)]
    # What each rank writes counts once.
    others = {line.translate(_LETTERS): after for line, after in full}
    is_usual = width in WIDTHS and not any(after[:1].isupper() for after in others.values())
    if len(others) < (1 if is_usual else FULL_MIN):
        return 0
    cut = sum(_is_word(line[-1:]) and _is_word(after[:1]) for line, after in full)
    alike = sum(_shape(line) == _shape(after) or BEGINS.match(after) is not None for line, after in full)
    if len(full) >= MANY and alike <= ALIKE_OF_MANY * len(full):
        return width if cut >= CUT_WORDS_OF_MANY * len(full) else 0
    return width if cut >= CUT_WORDS_MIN * len(full) and alike <= ALIKE_MAX * len(full) else 0


def joints(text: bytes, ends: Sequence[int], width: int) -> Iterator[int]:
    """Yields the indexes of line ends that only the terminal inserted."""
    begin = 0
    for number, end in enumerate(ends):
        if width <= end - begin <= 4 * width and end + 1 < len(text) and _columns(text[begin:end]) == width:
            line, after = text[begin:end], text[end + 1 : end + 1 + width]
            if _is_text(line) and after[:1] != b"\n" and not BEGINS.match(after):
                yield number
        begin = end + 1


def broken_statements(text: bytes, ends: Sequence[int]) -> Iterator[int]:
    """Yields the indexes of line ends that divide a launcher's statement about the end of a process.

    prterun breaks it before "signal"; mail programs break it anywhere.
    """
    for statement in BROKEN.finditer(text):
        yield bisect_left(ends, statement.end())


def _columns(line: bytes) -> int:
    return len(line) if line.isascii() else len(line.decode("utf-8", "replace"))


def _is_text(line: bytes) -> bool:
    """Returns whether a line is neither a rule across the screen nor a row of a table."""
    return len(set(line)) > 6 and line[-1:] not in (b"|", b"+")


def _is_word(character: bytes) -> bool:
    return character.isalnum() or character in (b"_", b"/", b".", b"-", b":", b"=")


def _shape(line: bytes) -> bytes:
    return line[:SHAPE_BYTES].translate(_LETTERS)

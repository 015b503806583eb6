"""Finds lines that match a user's pattern, in time linear in the size of the text.

Hyperscan evaluates patterns. It never backtracks, so no pattern can block the server. It supports PCRE
without lookarounds and back references. If it is not installed, a pattern is plain text.
"""

import re
from contextlib import suppress
from typing import Protocol

try:
    import hyperscan
except ImportError:  # no wheel for this machine
    hyperscan = None  # type: ignore[assignment]

PATTERN_CHARS_MAX = 1_000
ENDS_MAX = 20_000  # per block; a block with more matches is searched in parts
_END = re.compile(rb"\r\n|\r|\n")


class BadPattern(ValueError):
    """Error: the pattern cannot be used. The message says why."""


class Pattern(Protocol):
    """Interface of a compiled search pattern."""

    ends_max: int

    def ends(self, block: bytes) -> list[int]:
        """Returns ascending offsets at or just after a match, at most `ends_max`. A line can have several."""
        ...


class _Fast:
    def __init__(self, text: str, ends_max: int) -> None:
        self.ends_max = ends_max
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        try:
            self._database.compile(
                expressions=[text.encode()], ids=[0], elements=1, flags=[hyperscan.HS_FLAG_MULTILINE]
            )
        except hyperscan.error as error:
            raise BadPattern(f"{text!r} cannot be searched: {_reason(text, error)}") from error
        self._scratch = hyperscan.Scratch(self._database)

    def ends(self, block: bytes) -> list[int]:
        found: list[int] = []

        def on_match(number: int, start: int, end: int, flags: int, context: object) -> bool:
            found.append(end)
            return len(found) >= self.ends_max

        with suppress(hyperscan.error):  # raised if `on_match` ended the scan
            self._database.scan(block, on_match, scratch=self._scratch)
        return found


class _Plain:
    def __init__(self, text: str, ends_max: int) -> None:
        self.ends_max = ends_max
        self._text = text.encode()

    def ends(self, block: bytes) -> list[int]:
        found: list[int] = []
        at = block.find(self._text)
        while at >= 0 and len(found) < self.ends_max:
            found.append(at + len(self._text))
            at = block.find(self._text, at + 1)
        return found


def compiled(text: str, ends_max: int = ENDS_MAX) -> Pattern:
    """Compiles a regular expression that finds at most `ends_max` matches in a block. Raises BadPattern."""
    if not text or len(text) > PATTERN_CHARS_MAX:
        raise BadPattern(f"a pattern has 1 to {PATTERN_CHARS_MAX} characters, not {len(text)}")
    return _Fast(text, ends_max) if hyperscan is not None else _Plain(text, ends_max)


def line_starts(pattern: Pattern, block: bytes) -> tuple[list[int], int]:
    """Returns the start offsets of matching lines, each once, and the number of bytes searched.

    The block starts at the start of a line, and so does its unsearched rest.
    """
    starts: list[int] = []
    done = 0  # offset after the last line found
    ends = pattern.ends(block)
    for end in ends:
        if end <= done:
            continue
        last = max(end - 1, 0)  # the match can include the line end
        while last > done and block[last] in b"\r\n":
            last -= 1
        starts.append(max(block.rfind(b"\n", done, last), block.rfind(b"\r", done, last)) + 1 or done)
        stop = _END.search(block, max(starts[-1], last))
        done = stop.end() if stop else len(block)
    return starts, done if len(ends) >= pattern.ends_max else len(block)


def _reason(text: str, error: Exception) -> str:
    if re.search(r"\(\?[=!<]|\\[1-9]", text):
        return "lookarounds and back references are not supported"
    try:
        re.compile(text)
    except re.error as wrong:
        return str(wrong)
    return f"write it more simply ({error})" if str(error) else "write it more simply"

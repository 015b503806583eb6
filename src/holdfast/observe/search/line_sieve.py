"""Selects lines that contain one of several words, before Python parses them.

Few of a log's ten thousand lines a second contain steps. Hyperscan finds them at gigabytes a second; without
it every line is kept, which is slower with the same result.
"""

from collections.abc import Sequence
from copy import copy

try:
    import hyperscan
except ImportError:  # no wheel for this machine
    hyperscan = None  # type: ignore[assignment]

FEW = 16  # lines; so few are not worth a scan


class LineSieve:
    """Filter that keeps log lines matching one of several patterns. For one thread.

    `expressions`: case-insensitive alternatives, in the syntax common to Hyperscan and `re`. `after`: number
    of lines kept after each match.
    """

    def __init__(self, expressions: Sequence[bytes], *, after: int = 0) -> None:
        self._after = after
        self._left = 0  # lines still to keep behind the last that was
        self._database: hyperscan.Database | None = None
        if hyperscan is None or not expressions:
            return
        count = len(expressions)
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        flags = hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_CASELESS
        try:
            database.compile(
                expressions=list(expressions), ids=[0] * count, elements=count, flags=[flags] * count
            )
        except hyperscan.error:
            return
        self._database = database
        self._scratch = hyperscan.Scratch(database)

    def fork(self) -> "LineSieve":
        """Returns another filter with the same patterns, for other lines in the same thread."""
        other = copy(self)
        other._left = 0
        return other

    def kept(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Returns the matching lines in order; all of them if there are few. Lines must have no line ends."""
        if self._database is None or len(lines) < FEW:
            self._left = self._after
            return lines
        ends: list[int] = []

        def on_match(number: int, start: int, end: int, flags: int, context: object) -> None:
            ends.append(end)

        self._database.scan(b"\n".join(lines), on_match, scratch=self._scratch)
        return self._those_with(lines, ends)

    def _those_with(self, lines: Sequence[bytes], ends: Sequence[int]) -> list[bytes]:
        """Returns the lines in which matches end. `ends`: offsets of the ends of matches, in any order."""
        if not ends and not self._left:
            return []
        found = iter(sorted(ends))
        end = next(found, None)
        kept = []
        line_end = -1
        for line in lines:
            line_end += len(line) + 1
            if end is not None and end <= line_end:
                self._left = self._after + 1
                while end is not None and end <= line_end:
                    end = next(found, None)
            if self._left:
                self._left -= 1
                kept.append(line)
        return kept

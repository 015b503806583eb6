"""Splits a stream of bytes into lines, in bounded memory. Pure; never decodes and never raises on its input.

A carriage return ends a line like a newline, so each refresh of a progress bar is a line; both together end
one line. A line longer than the limit is returned truncated and marked at once, and its rest is dropped.
"""

from holdfast.late_pattern import late

LINE_BYTES_MAX = 64 << 10
CUT_MARK = b" [line cut]"
# A carriage return at the beginning of a line is ignored: `\n\r 10%` has one line end, not two.
LINE_END = late(rb"\n\r++(?!\n)|\r++\n?|\n")
ANY_END = late(rb"[\r\n]")


class LineCutter:
    """Splits blocks of bytes into lines; keeps the unfinished line between calls, at most `line_bytes_max`
    bytes.
    """

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._held = b""
        self._skipping = False  # the rest of a line that was given cut, up to its end
        self._after_return = False  # the last byte fed was a carriage return: a newline now belongs to it
        self._was_given = False  # what is fed now continues a line given before its end

    @property
    def held_bytes(self) -> int:
        """Returns the size of the unfinished line in bytes."""
        return len(self._held)

    def skip_line(self) -> None:
        """Drops the unfinished line and everything before the next line end."""
        self._held = b""
        self._skipping = True
        self._after_return = False

    def feed(self, block: bytes) -> list[bytes]:
        """Returns the lines completed by this block, without line ends."""
        block = self._without_leftovers(block)
        if not block:
            return []
        self._after_return = block.endswith(b"\r")
        lines = LINE_END.split(block) if b"\r" in block else block.split(b"\n")
        lines[0] = self._held + lines[0]
        self._held = lines.pop()
        if lines and self._was_given:
            self._was_given = False
            if not lines[0]:
                del lines[0]
        if lines and max(map(len, lines)) > self._line_bytes_max:
            lines = [self._cut(line) for line in lines]
        if len(self._held) > self._line_bytes_max:
            lines.append(self._cut(self._held))
            self.skip_line()
        return lines

    def flush(self) -> bytes | None:
        """Returns the unfinished line before its end; None if there is none. Later data starts a new line."""
        if not self._held:
            return None
        line, self._held = self._held, b""
        self._was_given = True
        return line

    def _without_leftovers(self, block: bytes) -> bytes:
        """Returns the block without the rest of a line that was returned already."""
        if self._after_return and block.startswith(b"\n"):
            block = block[1:]
            self._after_return = False
        if self._skipping:
            end = ANY_END.search(block)
            if end is None:
                return b""
            self._skipping = False
            is_pair = block[end.start() : end.start() + 2] == b"\r\n"
            self._after_return = block[end.start() :] == b"\r"
            block = block[end.end() + is_pair :]
        return block if self._held else block.lstrip(b"\r")

    def _cut(self, line: bytes) -> bytes:
        return line if len(line) <= self._line_bytes_max else line[: self._line_bytes_max] + CUT_MARK

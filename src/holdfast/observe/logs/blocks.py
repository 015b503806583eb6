"""Splits a log into blocks of whole lines, in constant memory.

A block includes some text that follows it, so that records of several lines are complete. Colours are
removed, a carriage return ends a line like a newline, lines wrapped by a terminal are joined, and lines that
Docker or journald wrapped in JSON are unwrapped. Original offsets stay available.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from holdfast.observe.logs.streams import Unreadable
from holdfast.observe.logs.tree import Log
from holdfast.parsers.log_lines.wrapped_json import Unwrap, unwrapper_of
from holdfast.parsers.log_lines.wrapped_lines import (
    HEAD_BYTES,
    STATEMENT,
    broken_statements,
    joints,
    width_of,
)

BLOCK_BYTES = 1 << 20
AHEAD_BYTES = 128 << 10
LINE_BYTES_MAX = 64 << 10  # a line end is looked for so far back; a longer line is cut anywhere
COLOUR = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,1000}(?:\x07|\x1b\\)?|[ -/][0-~]|[0-~])")


class Block:
    """A block of whole lines of a log. Its lines are `text[:size]`; the text after that belongs to later blocks.

    `raw`: the bytes as in the log, from `offset` on; valid until the next block. `width`: width of the terminal that
    wrapped the lines; None means unknown. `unwrap`: function that unwraps JSON lines; `is_known`: whether their
    format is known.
    """

    def __init__(
        self,
        raw: bytearray,
        raw_size: int,
        raw_end: int,
        offset: int,
        *,
        is_last: bool,
        width: int | None = 0,
        unwrap: Unwrap | None = None,
        is_known: bool = True,
    ) -> None:
        self.raw = raw
        self.raw_size = raw_size
        self.offset = offset
        self.is_last = is_last
        self.text: bytes | bytearray = raw
        self.size = raw_size
        self.end = raw_end
        self._ends: list[int] | None = None
        self._raw_ends: list[int] = []
        self._is_shifted = False
        self.unwrap = unwrap if is_known else unwrapper_of(bytes(raw[: min(raw_end, HEAD_BYTES)]))
        if self.unwrap is not None:
            self._unwrap(self.unwrap)
        self._clean()
        self.width = width if width is not None else width_of(bytes(self.text[: min(self.end, HEAD_BYTES)]))
        if self.width or self.text.find(STATEMENT, 0, self.end) >= 0:
            self._join_lines(bytes(self.text[: self.end]))

    def _unwrap(self, unwrap: Unwrap) -> None:
        """Unwraps lines in JSON; each line keeps its number."""
        raw, ahead_raw = bytes(self.text[: self.size]), bytes(self.text[self.size : self.end])
        lines, ahead = unwrap(raw), unwrap(ahead_raw)
        if lines is raw and ahead is ahead_raw:
            return  # nothing was wrapped
        raw += ahead_raw
        self._raw_text = raw
        self.text, self._is_shifted = lines + ahead, True
        self.size, self.end = len(lines), len(self.text)

    def _clean(self) -> None:
        """Removes colours and carriage returns from the text."""
        has_returns = self.text.find(b"\r", 0, self.end) >= 0
        has_colours = self.text.find(b"\x1b", 0, self.end) >= 0
        if has_returns or has_colours:
            lines, ahead = bytes(self.text[: self.size]), bytes(self.text[self.size : self.end])
            if has_returns:
                lines, ahead = lines.replace(b"\r", b"\n"), ahead.replace(b"\r", b"\n")
            if has_colours:
                self._raw_text = self._raw_text if self._is_shifted else lines + ahead
                lines, ahead = COLOUR.sub(b"", lines), COLOUR.sub(b"", ahead)
                self._is_shifted = True
            self.text = lines + ahead
            self.size, self.end = len(lines), len(self.text)

    def _join_lines(self, text: bytes) -> None:
        ends = _line_ends(text)
        broken = set(broken_statements(text, ends))
        dropped = broken.union(joints(text, ends, self.width) if self.width else ())
        if not dropped:
            return
        if not self._is_shifted:
            self._raw_text = text
        raw_ends = _line_ends(self._raw_text)
        parts, begin = [], 0
        for number in sorted(dropped):
            parts.append(text[begin : ends[number]] + (b" " if number in broken else b""))
            begin = ends[number] + 1
        parts.append(text[begin:])
        before = sum(ends[number] < self.size for number in dropped - broken)
        self.text, self._is_shifted = b"".join(parts), True
        self.size, self.end = self.size - before, len(self.text)
        self._ends = _line_ends(self.text)
        self._raw_ends = [end for number, end in enumerate(raw_ends) if number not in dropped]

    def offset_of(self, line_at: int) -> int:
        """Returns the offset in the log of the line that begins at `line_at` in the block's text."""
        if not self._is_shifted:
            return self.offset + line_at
        if self._ends is None:
            self._ends = _line_ends(self.text)
            self._raw_ends = _line_ends(self._raw_text)
        number = bisect_left(self._ends, line_at)
        return self.offset + (self._raw_ends[number - 1] + 1 if number else 0)


def blocks(log: Log, buffer: bytearray) -> Iterator[Block]:
    """Yields a log as blocks of whole lines. A hole in a sparse file separates two lines.

    `buffer`: from `new_buffer`, reused for each block. Raises Unreadable after the last block that could be
    read.
    """
    view = memoryview(buffer)
    held = 0
    offset = log.file.at if log.file else 0
    width, unwrap, is_known = None, None, False
    while True:
        filled, trouble = _fill(log, view[held:])
        size = held + filled
        is_full = size == len(buffer)
        cut = _cut(buffer, size - AHEAD_BYTES) if is_full else size
        is_last = not is_full and (trouble is not None or not (log.file and log.file.pass_hole()))
        block = Block(
            buffer, cut, size, offset, is_last=is_last, width=width, unwrap=unwrap, is_known=is_known
        )
        width, unwrap, is_known = block.width, block.unwrap, True
        yield block
        if trouble is not None:
            raise trouble
        if is_last:
            return
        if is_full:
            held = size - cut
            view[:held] = view[cut:size]
            offset += cut
        else:
            held = 0
            offset = log.file.at if log.file else offset


def of_lines(lines: Sequence[bytes], offset: int) -> Block:
    """Returns lines as one block. The first begins at `offset`, and each line end counts as one byte."""
    raw = bytearray(b"\n".join((*lines, b"")))
    return Block(raw, len(raw), len(raw), offset, is_last=True)


def new_buffer() -> bytearray:
    return bytearray(BLOCK_BYTES + AHEAD_BYTES)


def _fill(log: Log, view: memoryview) -> tuple[int, Unreadable | None]:
    """Reads until the buffer is full, the log ends, a hole comes or reading fails.

    Returns the size and the error.
    """
    filled = 0
    try:
        while filled < len(view):
            if log.file:
                size = log.file.read_into(view[filled:])
            else:
                data = log.stream.read(len(view) - filled)
                size = len(data)
                view[filled : filled + size] = data
            if not size:
                break
            filled += size
    except Unreadable as trouble:
        return filled, trouble
    return filled, None


def _cut(buffer: bytearray, limit: int) -> int:
    """Returns the offset after the last line end before `limit`, or `limit` itself if no line ends nearby."""
    nearby = limit - LINE_BYTES_MAX
    return 1 + max(buffer.rfind(b"\n", nearby, limit), buffer.rfind(b"\r", nearby, limit)) or limit


def _line_ends(text: bytes | bytearray) -> list[int]:
    return [match.start() for match in re.finditer(rb"\n", text)]

"""Reads lines of one output file with their times, forwards or backwards from an offset.

A line ends with a newline, a carriage return, or both. A position is the byte offset of a line's start, so it
stays valid while the file grows. Times come from the index beside the file (observe/logs/index.py).
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from holdfast.archive.output.log_files import LogFile
from holdfast.observe.logs.index import Index

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_END = re.compile(rb"\r\n|\r|\n")
_RETURN, _NEWLINE = b"\r", b"\n"


class Sizes(Struct, frozen=True, kw_only=True):
    """Limits in bytes. `block_bytes`: for each read. `shown_bytes`: shown of a line; the rest counts as cut.

    `piece_bytes`: a longer line is split into several.
    """

    block_bytes: int = 64 << 10
    shown_bytes: int = 16 << 10
    piece_bytes: int = 16 << 20


SIZES = Sizes()


class RawLine(Struct, frozen=True):
    """A line of an output file. `offset`, `end`: its start and the start of the next line.

    `text`: without line end.

    `cut_bytes`: how many bytes of the line are missing in `text`. `exact`: whether `at_s` is exact.
    """

    offset: int
    end: int
    text: bytes
    cut_bytes: int
    at_s: float
    exact: bool


class Times:
    """The times at which the bytes of one file were written.

    They are inexact where the file was not followed; the time is then that of its last change.
    """

    def __init__(self, log: LogFile) -> None:
        self._index = Index(log.path)
        self._ahead_s = log.ahead_s
        self._changed_s = 0.0
        with suppress(OSError):
            self._changed_s = log.path.stat().st_mtime
        self._low, self._high, self._at_s = 0, -1, 0.0  # the range of the last answer

    def of(self, end: int) -> tuple[float, bool]:
        """Returns when the bytes before `end` had been written, and whether that time is exact."""
        if self._low < end <= self._high:
            return self._at_s, True
        number = self._index.first_holding(end)
        if number >= self._index.count:
            return self._changed_s - self._ahead_s, False
        at_s, high = self._index.record(number)
        low = self._index.record(number - 1)[1] if number else 0
        self._low, self._high, self._at_s = low, high, at_s - self._ahead_s
        return self._at_s, True

    def place(self, at_s: float) -> int:
        """Returns an offset before which everything was written earlier than `at_s`."""
        number = self._index.first_at(at_s + self._ahead_s)
        return self._index.record(number - 1)[1] if number else 0


class TimedLines:
    """One output file open for reading; a context manager. An unreadable file has no lines."""

    def __init__(self, log: LogFile, sizes: Sizes = SIZES) -> None:
        self.log = log
        self.times = Times(log)
        self._sizes = sizes
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self.size_bytes = os.fstat(self._descriptor).st_size if self._descriptor is not None else 0

    def __enter__(self) -> "TimedLines":
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Returns bytes of the file, up to the size that it had when it was opened."""
        size_bytes = min(size_bytes, self.size_bytes - offset)
        if self._descriptor is None or size_bytes <= 0 or offset < 0:
            return b""
        try:
            return os.pread(self._descriptor, size_bytes, offset)
        except OSError:
            return b""

    def line_start(self, offset: int) -> int:
        """Returns the start of the line that contains the byte at `offset`."""
        offset = max(0, min(offset, self.size_bytes))
        end = offset
        floor = max(0, offset - self._sizes.piece_bytes)
        while end > floor:
            start = max(floor, end - self._sizes.block_bytes)
            block = self.read(start, end - start)
            found = max(block.rfind(_NEWLINE), self._last_return(block, start))
            if found >= 0:
                return start + found + 1
            if len(block) < end - start:
                return offset
            end = start
        return floor

    def line_at(self, offset: int) -> RawLine | None:
        """Returns the line that starts at `offset`; None at the end of the file."""
        return next(self.forwards(offset), None)

    def forwards(self, offset: int) -> Iterator[RawLine]:
        """Yields lines from a line start on, including an unfinished last line."""
        at = max(0, offset)
        while at < self.size_bytes:
            block = self.read(at, self._sizes.block_bytes)
            if not block:
                return
            is_last = at + len(block) >= self.size_bytes
            whole = len(block) if is_last else self._whole_bytes(block)
            if not whole:
                line = self._long_line(at)
                yield line
                at = line.end
                continue
            for match in _LINE.finditer(block, 0, whole):
                if match.start() < match.end():
                    yield self._line(at + match.start(), match[0])
            at += whole

    def backwards(self, offset: int) -> Iterator[RawLine]:
        """Yields lines before a line start, nearest first."""
        end = min(offset, self.size_bytes)
        while end > 0:
            start = self._block_start(end)
            block = self.read(start, min(end - start, self._sizes.block_bytes))
            if not block:
                return
            if end - start > self._sizes.block_bytes:
                yield self._cut_line(start, end, block)
            else:
                lines = [match for match in _LINE.finditer(block) if match.start() < match.end()]
                for match in reversed(lines):
                    yield self._line(start + match.start(), match[0])
            end = start

    def _block_start(self, end: int) -> int:
        """Returns a line start at most one block before `end`, or that of a line longer than a block."""
        start = max(0, end - self._sizes.block_bytes)
        if start == 0:
            return 0
        first = _first_end(self.read(start, end - start))
        return start + first if 0 <= first < end - start else self.line_start(end - 1)

    def _last_return(self, block: bytes, start: int) -> int:
        """Returns the offset of the last carriage return in the block that ends a line, without one before
        a newline.
        """
        found = block.rfind(_RETURN)
        if found == len(block) - 1 and found >= 0 and self.read(start + len(block), 1) == _NEWLINE:
            return block.rfind(_RETURN, 0, found)
        return found

    def _whole_bytes(self, block: bytes) -> int:
        """Returns the size of the whole lines in a block that is not the last."""
        newline = block.rfind(_NEWLINE)
        a_return = block.rfind(_RETURN, 0, len(block) - 1)  # the last byte may be half of a line end
        return max(newline, a_return) + 1

    def _long_line(self, offset: int) -> RawLine:
        """Reads a line that is longer than a block."""
        at = offset
        end = min(self.size_bytes, offset + self._sizes.piece_bytes)
        while at < end:
            block = self.read(at, min(self._sizes.block_bytes, end - at))
            if not block:
                break
            found = _END.search(block + self.read(at + len(block), 2))
            if found and found.start() <= len(block):  # beyond that, half of a line end may have been read
                return self._cut_line(offset, at + found.end(), self.read(offset, self._sizes.shown_bytes))
            at += len(block)
        return self._cut_line(
            offset, at if at > offset else self.size_bytes, self.read(offset, self._sizes.shown_bytes)
        )

    def _line(self, offset: int, raw: bytes) -> RawLine:
        return self._cut_line(offset, offset + len(raw), raw)

    def _cut_line(self, offset: int, end: int, raw: bytes) -> RawLine:
        text = raw[: self._sizes.shown_bytes].rstrip(b"\r\n")
        cut_bytes = max(0, end - offset - self._sizes.shown_bytes)
        at_s, exact = self.times.of(end)
        return RawLine(offset, end, text, cut_bytes, at_s, exact)


def _first_end(block: bytes) -> int:
    """Returns the offset after the first line end; -1 if there is none."""
    match = _END.search(block)
    return match.end() if match else -1

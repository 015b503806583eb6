"""Reads the write-ahead log of a journal without SQLite: its frames, and which of them were committed.

A kill can interrupt a write between the header of a frame and its page, or inside the page, because the
kernel copies in pieces. So a header alone proves nothing; checksums distinguish an incomplete frame from a
damaged log. SQLite stops at the first wrong checksum; this module checks each frame against the one before
it.

source: https://www.sqlite.org/fileformat2.html#walformat
"""

import struct
from contextlib import suppress
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from holdfast.journal.rows import PAGE_BYTES

_HEAD_BYTES = 32
_SUMMED_HEAD_BYTES = 24  # the log header's checksum covers these
_BIG_ENDIAN_MAGIC = 0x377F0683
_FRAME_HEAD = struct.Struct(">IIQII")
_FRAME_BYTES = _FRAME_HEAD.size + PAGE_BYTES
_SUMMED_FRAME_BYTES = 8 + PAGE_BYTES  # the page's number, the pages after a commit, the page
_SALTS_AT, _CHECKSUM_AT = 16, 24


class _Frame(NamedTuple):
    page_number: int
    pages_after_commit: int  # 0: no commit
    salts: (
        int  # of the log's generation; 0 in an overwritten frame whose checksum SQLite has not yet computed
    )
    checksum: tuple[int, int]  # over all frames of the generation up to this one


class Log:
    """The frames of one write-ahead log file, numbered from 0. A missing file has none."""

    def __init__(self, path: Path) -> None:
        self._file = opened(path)
        self._head = read_at(self._file, 0, _HEAD_BYTES).ljust(_HEAD_BYTES, b"\0")
        self._order = ">" if int.from_bytes(self._head[:4], "big") == _BIG_ENDIAN_MAGIC else "<"
        # SQLite ignores an incomplete frame at the end of the file, even if only zeros are missing.
        whole_frames = max(0, size_of(self._file) - _HEAD_BYTES) // _FRAME_BYTES
        self._frames = [self._read_frame(frame) for frame in range(whole_frames)]
        self.committed = self._committed()  # the number of the page in each committed frame

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def page(self, frame: int) -> bytes:
        return read_at(self._file, _HEAD_BYTES + frame * _FRAME_BYTES + _FRAME_HEAD.size, PAGE_BYTES)

    @cached_property
    def sound_frames(self) -> int:
        """Returns how many frames SQLite reads when it opens the log: up to the last commit before any
        damage.
        """
        if self._sum(self._head[:_SUMMED_HEAD_BYTES], (0, 0)) != self._head_checksum:
            return 0
        sound, salts = 0, int.from_bytes(self._head[_SALTS_AT:_CHECKSUM_AT], "big")
        for number, frame in enumerate(self._frames):
            if frame.salts != salts or not self._follows(number):
                break
            sound = number + 1 if frame.pages_after_commit else sound
        return sound

    @property
    def _head_checksum(self) -> tuple[int, int]:
        first, second = struct.unpack(">II", self._head[_CHECKSUM_AT:])
        return first, second

    def _committed(self) -> dict[int, int]:
        """Returns, by frame number, the page number of each frame that belongs to a committed transaction.

        Frames without a commit after them were never acknowledged: their writer was killed.
        """
        last = dict[int, int]()
        for number in reversed(range(len(self._frames))):
            frame = self._frames[number]
            if frame.pages_after_commit and frame.salts not in last and self._was_finished(number):
                last[frame.salts] = number
        return {
            number: frame.page_number
            for number, frame in enumerate(self._frames)
            if number <= last.get(frame.salts, -1)
        }

    def _was_finished(self, number: int) -> bool:
        """Returns whether the frame was ever written completely; for a damaged one, a later frame
        proves it.
        """
        salts, after = self._frames[number].salts, number + 1
        if not salts:
            return False
        return self._follows(number) or (
            after < len(self._frames) and self._frames[after].salts == salts and self._follows(after)
        )

    def _follows(self, number: int) -> bool:
        """Returns whether the frame's checksum is right, given the checksum stored before it."""
        at = _HEAD_BYTES + number * _FRAME_BYTES
        content = read_at(self._file, at, 8) + self.page(number)
        before = self._frames[number - 1].checksum if number else self._head_checksum
        return (
            len(content) == _SUMMED_FRAME_BYTES
            and self._sum(content, before) == self._frames[number].checksum
        )

    def _sum(self, content: bytes, before: tuple[int, int]) -> tuple[int, int]:
        words = struct.unpack(f"{self._order}{len(content) // 4}I", content)
        first, second = before
        for even, odd in zip(words[::2], words[1::2], strict=True):
            first = (first + even + second) & 0xFFFFFFFF
            second = (second + odd + first) & 0xFFFFFFFF
        return first, second

    def _read_frame(self, number: int) -> _Frame:
        head = read_at(self._file, _HEAD_BYTES + number * _FRAME_BYTES, _FRAME_HEAD.size)
        page, pages, salts, first, second = _FRAME_HEAD.unpack(head.ljust(_FRAME_HEAD.size, b"\0"))
        return _Frame(page, pages, salts, (first, second))


def opened(path: Path) -> BufferedReader | None:
    """Opens a file for reading; None if it does not exist."""
    return path.open("rb") if path.is_file() else None


def size_of(file: BufferedReader | None) -> int:
    """Returns the size of an open file in bytes; 0 for None."""
    return file.seek(0, 2) if file is not None else 0


def read_at(file: BufferedReader | None, at: int, count: int) -> bytes:
    """Reads up to `count` bytes at an offset; fewer at the file's end, none if the disk has an error."""
    if file is not None:
        with suppress(OSError):
            file.seek(at)
            return file.read(count)
    return b""

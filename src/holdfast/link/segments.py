"""Stores numbered entries in a log of segment files, and removes the oldest by whole files.

Never calls fsync.

A file `PREFIX-<first number>.log` holds consecutive entries: `crc32 u32 | length u32 | number u64 | body`,
numbers in network order, the CRC over all that follows it. Complete entries survive a kill of the process; an
incomplete one fails its CRC, and is truncated when the file is opened again.
"""

import os
import struct
import zlib
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

_ENTRY = struct.Struct("!IIQ")
_CRC = struct.Struct("!I")
SEGMENT_BYTES = 1 << 20
OVERHEAD_BYTES = _ENTRY.size

Numbered = tuple[int, bytes]


class _Segment(Struct):
    path: Path
    first: int
    last: int
    size_bytes: int
    entries: int


class SegmentLog:
    """A log of numbered entries in segment files of a folder.

    If `append` raises OSError, the log is unchanged.

    `damaged`: a sentence on the damage found at opening; empty if there was none.
    """

    def __init__(self, folder: Path, prefix: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder, self._prefix = folder, prefix
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._descriptor: int | None = None
        self._read_path: Path | None = None  # the file that was read last, and its entries
        self._read: list[Numbered] = []
        self._read_bytes = 0
        self.damaged = ""
        self._open()

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def last(self) -> int:
        """Returns the highest number in the log; 0 if it is empty."""
        return self._segments[-1].last if self._segments else 0

    def append(self, number: int, body: bytes) -> None:
        assert number > self.last
        if self._descriptor is None or self._segments[-1].size_bytes >= self._segment_bytes:
            self._begin(number)
        assert self._descriptor is not None
        segment = self._segments[-1]
        data = _packed(number, body)
        try:
            written = os.write(self._descriptor, data)
            while written < len(data):  # a full disk may take a part, and says why with the next
                written += os.write(self._descriptor, data[written:])
        except OSError:
            self._undo(segment)
            raise
        segment.last = number
        segment.size_bytes += len(data)
        segment.entries += 1

    def read(self, after: int) -> list[Numbered]:
        """Returns entries with numbers above `after`, in order, of one file at a time; empty at the end."""
        for segment in self._segments:
            if segment.last > after and segment.entries:
                entries = self._entries(segment)
                found = entries[bisect_right(entries, after, key=lambda entry: entry[0]) :]
                if found:
                    return found
        return []

    def forget(self, upto: int) -> None:
        """Removes the files with no number above `upto`."""
        while self._segments and self._segments[0].last <= upto:
            self._remove_first()

    def drop_oldest(self) -> int:
        """Removes the oldest file. Returns how many entries it had."""
        if not self._segments:
            return 0
        entries = self._segments[0].entries
        self._remove_first()
        return entries

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        try:
            paths = sorted(self._folder.glob(f"{self._prefix}-*.log"))
        except OSError as error:
            self.damaged = f"{self._folder} cannot be read: {error}"
            return
        for path in paths:
            entries, good_bytes, size_bytes = _scanned(path)
            if good_bytes < size_bytes:
                self.damaged = f"{path}: the last {size_bytes - good_bytes} bytes are an incomplete entry"
                with suppress(OSError):
                    os.truncate(path, good_bytes)
            last = self.last
            numbers = [number for number, _ in entries if number > last]
            if numbers:
                self._segments.append(_Segment(path, numbers[0], numbers[-1], good_bytes, len(entries)))
            else:
                with suppress(OSError):
                    path.unlink()

    def _begin(self, number: int) -> None:
        path = self._folder / f"{self._prefix}-{number:020}.log"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
        self.close()
        self._descriptor = descriptor
        self._segments.append(_Segment(path, number, number - 1, 0, 0))

    def _undo(self, segment: _Segment) -> None:
        """Truncates a partly written entry. If that fails, the next entry goes into a new file."""
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, segment.size_bytes)
        except OSError:
            self.close()
        if not segment.entries:
            self.close()
            self._segments.pop()
            with suppress(OSError):
                segment.path.unlink()

    def _remove_first(self) -> None:
        segment = self._segments.pop(0)
        if not self._segments:
            self.close()
        if self._read_path == segment.path:
            self._read_path, self._read = None, []
        with suppress(OSError):
            segment.path.unlink()

    def _entries(self, segment: _Segment) -> list[Numbered]:
        if self._read_path != segment.path or self._read_bytes != segment.size_bytes:
            self._read_path, self._read_bytes = segment.path, segment.size_bytes
            self._read, _, _ = _scanned(segment.path)
        return self._read


def _packed(number: int, body: bytes) -> bytes:
    head = _ENTRY.pack(0, len(body), number)[_CRC.size :]
    return _CRC.pack(zlib.crc32(body, zlib.crc32(head))) + head + body


def _scanned(path: Path) -> tuple[list[Numbered], int, int]:
    """Returns the valid entries of a file, their size in bytes, and the size of the file."""
    try:
        data = path.read_bytes()
    except OSError:
        return [], 0, 0
    entries: list[Numbered] = []
    at = 0
    while len(data) - at >= _ENTRY.size:
        crc, length, number = _ENTRY.unpack_from(data, at)
        end = at + _ENTRY.size + length
        if end > len(data) or zlib.crc32(memoryview(data)[at + _CRC.size : end]) != crc:
            break
        entries.append((number, data[at + _ENTRY.size : end]))
        at = end
    return entries, at, len(data)

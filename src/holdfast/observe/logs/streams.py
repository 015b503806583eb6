"""Reads the bytes of logs: files with holes, compressed data. Sizes are limited, and nothing is written.

Every reader has `read(size)`, which returns at most that many bytes, and none at the end. Data that cannot be
read further raises Unreadable with the reason; what was read before remains valid.
"""

import bz2
import codecs
import lzma
import os
import zlib
from typing import Any, BinaryIO, Protocol

import zstandard
from msgspec import Struct

INPUT_BYTES = 256 << 10
LZMA_MEMORY_BYTES = 96 << 20
ZSTD_WINDOW_BYTES = 128 << 20


class Unreadable(OSError):
    """Raised when a file cannot be read any further. The message says why, in words for users."""


class Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of the unpacked size of one file.

    `ratio_max` applies only beyond `free_bytes`, because logs compress well.

    Logs of steps shrink to a twentieth with gzip and to a sixtieth with zstd -19; decompression bombs grow a
    thousandfold.
    """

    ratio_max: float = 200.0
    free_bytes: int = 256 << 20
    bytes_max: int = 32 << 30
    members_max: int = 100_000
    depth_max: int = 4


class Meter:
    """Counter of the unpacked bytes of one file on disk, through all layers of compression."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.packed_bytes = 0
        self.unpacked_bytes = 0
        self.members = 0

    def count(self, size_bytes: int) -> None:
        """Adds to the counter. Raises Unreadable beyond the limit."""
        self.unpacked_bytes += size_bytes
        limits = self.limits
        if self.unpacked_bytes > limits.bytes_max:
            raise Unreadable(f"it unpacks to more than {limits.bytes_max >> 30} GiB: the rest was not read")
        if self.unpacked_bytes > limits.free_bytes + limits.ratio_max * self.packed_bytes:
            raise Unreadable(
                f"it unpacks to more than {limits.ratio_max:g} times its size, more than any log: the "
                "rest was not read"
            )

    def count_member(self) -> None:
        self.members += 1
        if self.members > self.limits.members_max:
            raise Unreadable(f"it has more than {self.limits.members_max} members: the rest was not read")


class ReadAhead:
    """A stream whose first bytes are read in advance. `is_all`: the stream has no more than these."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        try:
            self._head = stream.read(size) or b""
            self.is_all = len(self._head) < size
        except (OSError, ValueError):  # who reads on will see it again
            self._head, self.is_all = b"", False

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes. Raises OSError and ValueError, as the stream does."""
        taken, self._head = self._head[:size], self._head[size:]
        if taken or self.is_all:
            return taken
        return self._stream.read(size) or b""


class FileReader:
    """Reader of one open file, up to the size that it had when it was opened. Skips holes.

    `at`: offset of the next byte. `is_shorter`: True if the file ended before that size.
    """

    def __init__(self, fd: int) -> None:
        about = os.fstat(fd)
        self.size_bytes = about.st_size
        self.at = 0
        self.is_shorter = False
        self._fd = fd
        self._is_sparse = about.st_blocks * 512 < about.st_size
        self._data_end = 0 if self._is_sparse else self.size_bytes
        self._pass_hole()

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes. Raises Unreadable."""
        self._pass_hole()
        try:
            data = os.pread(self._fd, min(size, self._data_end - self.at), self.at)
        except OSError as error:
            raise Unreadable(f"reading failed at byte {self.at}: {error.strerror}") from error
        return data if self._note(len(data)) else b""

    def read_into(self, view: memoryview) -> int:
        """Reads into an existing buffer, up to the next hole, and returns the number of bytes.

        Raises Unreadable.
        """
        room = min(len(view), self._data_end - self.at)
        try:
            size = os.preadv(self._fd, [view[:room]], self.at) if room > 0 else 0
        except OSError as error:
            raise Unreadable(f"reading failed at byte {self.at}: {error.strerror}") from error
        return self._note(size) if room > 0 else 0

    def pass_hole(self) -> bool:
        """Skips a hole in the file. Returns False at the end of the file."""
        self._pass_hole()
        return self.at < self._data_end

    def _note(self, size: int) -> int:
        self.at += size
        if not size and self.at < self._data_end:
            self.is_shorter = True
            self._data_end = self.size_bytes = self.at
        return size

    def _pass_hole(self) -> None:
        if self.at < self._data_end or not self._is_sparse or self.at >= self.size_bytes:
            return
        try:
            self.at = os.lseek(self._fd, self.at, os.SEEK_DATA)
            self._data_end = min(self.size_bytes, os.lseek(self._fd, self.at, os.SEEK_HOLE))
        except (
            OSError
        ):  # ENXIO: nothing but a hole is left; others: a file system without holes would not say so
            self.at = self._data_end = self.size_bytes


class Replayed:
    """Reader that first returns bytes already read (`head`), then the rest.

    Errors of reading ahead are raised after them.
    """

    def __init__(self, reader: Reader, size: int) -> None:
        self.head = b""
        self._rest = reader
        self._error: Unreadable | None = None
        try:
            while len(self.head) < size and (data := reader.read(size - len(self.head))):
                self.head += data
        except Unreadable as error:
            if not self.head:
                raise
            self._error = error
        self._left = self.head

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes. Raises Unreadable."""
        if self._left:
            data, self._left = self._left[:size], self._left[size:]
            return data
        if self._error is not None:
            raise self._error
        return self._rest.read(size)

    def skip(self, prefix: bytes) -> None:
        self._left = self._left.removeprefix(prefix)


class Packed:
    """Reader that counts the compressed bytes read from the file."""

    def __init__(self, reader: Reader, meter: Meter) -> None:
        self._reader = reader
        self._meter = meter

    def read(self, size: int, /) -> bytes:
        data = self._reader.read(size)
        self._meter.packed_bytes += len(data)
        return data


class Unpacked:
    """Reader that decompresses gzip, bzip2 or xz, including several concatenated members.

    `make`: returns a new decompressor of zlib, bz2 or lzma.
    """

    def __init__(self, packed: Reader, make: Any, meter: Meter) -> None:
        self._packed = packed
        self._make = make
        self._meter = meter
        self._engine = make()
        self._input = b""

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` decompressed bytes. Raises Unreadable."""
        while True:
            if self._engine.eof and not self._begin_next():
                return b""
            if not self._input and getattr(self._engine, "needs_input", True):
                self._input = self._packed.read(INPUT_BYTES)
                if not self._input:
                    raise Unreadable("its packed data is truncated; the existing part was read")
            data = self._step(size)
            if data:
                self._meter.count(len(data))
                return data

    def _step(self, size: int) -> bytes:
        try:
            data = bytes(self._engine.decompress(self._input, size))
        except (zlib.error, OSError, EOFError, lzma.LZMAError, ValueError) as error:
            raise Unreadable(f"it is damaged: {error}") from error
        except MemoryError as error:
            raise Unreadable("unpacking it needs too much memory") from error
        self._input = getattr(self._engine, "unconsumed_tail", b"")
        return data

    def _begin_next(self) -> bool:
        """Begins the next concatenated member; zeros between and after members are padding.

        Returns False at the end.
        """
        rest = self._engine.unused_data.lstrip(b"\0")
        while not rest:
            block = self._packed.read(INPUT_BYTES)
            if not block:
                return False
            rest = block.lstrip(b"\0")
        self._engine = self._make()
        self._input = rest
        return True


class Unzstd:
    """Reader that decompresses Zstandard, including several frames."""

    def __init__(self, packed: Reader, meter: Meter) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        self._stream = decompressor.stream_reader(packed, read_size=INPUT_BYTES, read_across_frames=True)  # type: ignore[arg-type]
        self._meter = meter

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` decompressed bytes. Raises Unreadable."""
        try:
            data: bytes = self._stream.read(size)
        except zstandard.ZstdError as error:
            raise Unreadable(f"it is damaged or needs too much memory: {error}") from error
        self._meter.count(len(data))
        return data


class Utf8:
    """Reader that converts UTF-16 to UTF-8."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        self._is_over = False

    def read(self, size: int, /) -> bytes:
        while not self._is_over:
            data = self._reader.read(
                max(1, size // 2)
            )  # two bytes become up to three, a pair of two becomes four
            self._is_over = not data
            text = self._decoder.decode(data, self._is_over).encode("utf-8", "replace")
            if text:
                return text
        return b""


def gunzip(packed: Reader, meter: Meter) -> Reader:
    return Unpacked(packed, lambda: zlib.decompressobj(wbits=31), meter)


def bunzip2(packed: Reader, meter: Meter) -> Reader:
    return Unpacked(packed, bz2.BZ2Decompressor, meter)


def unxz(packed: Reader, meter: Meter) -> Reader:
    return Unpacked(packed, lambda: lzma.LZMADecompressor(memlimit=LZMA_MEMORY_BYTES), meter)


def unzstd(packed: Reader, meter: Meter) -> Reader:
    return Unzstd(packed, meter)


def exactly(reader: Reader, size: int) -> bytes:
    """Returns exactly `size` bytes from a reader, fewer only at the end."""
    parts: list[bytes] = []
    while size > 0 and (data := reader.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)

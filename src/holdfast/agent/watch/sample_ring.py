"""Stores the samples of one worker in two files of bounded size, which others can read while they are
written.

`samples.new` grows to SEGMENT_BYTES, then replaces `samples.old`. A worker's samples take at most twice that
size, and a reader with open files is never disturbed. A file is a sequence of records:

    length  4 bytes, little-endian, of the content
    crc     4 bytes, little-endian, CRC-32 of the content
    content one Moment as msgpack, compressed by zstd

A thread writes the files: if the disk is full or does not respond, samples are lost and counted, but the
agent never waits.
"""

import errno
import os
import queue
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import zstandard

from holdfast.model.nodes.samples import Moment

NEW, OLD = "samples.new", "samples.old"
SEGMENT_BYTES = 4 << 20  # 40 minutes, where 8 ranks, 8 GPUs and 8 RDMA ports take 1,750 bytes a second
OPENED_TIMES_MAX = 8
SEGMENT_BYTES_READ_MAX = 64 << 20  # another version may have larger ones
RECORD_BYTES_MAX = 1 << 20  # of content, compressed and not
HEAD = struct.Struct("<II")
WAITING_MAX = 16  # moments, while the disk does not respond
LEVEL = 1
CLOSE_WAIT_S = 2.0


class SampleRing:
    """The ring buffer with the samples of one worker, in the worker's folder.

    `dropped`: number of lost samples; `why_not`: the reason for the last loss.
    """

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.dropped = 0
        self.why_not = ""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._fd: int | None = None
        self._size_bytes = 0
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
        self._encoder = msgspec.msgpack.Encoder()
        self._waiting: queue.Queue[Moment | None] = queue.Queue(WAITING_MAX)
        self._thread = threading.Thread(target=self._write_all, name="holdfast-samples", daemon=True)
        self._thread.start()

    def add(self, moment: Moment) -> None:
        """Queues the samples of one moment for writing. Returns at once."""
        try:
            self._waiting.put_nowait(moment)
        except queue.Full:
            self._drop("the disk does not respond")

    def flush(self) -> None:
        """Waits until everything that was added is written or dropped."""
        self._waiting.join()

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Writes what is queued. If the disk does not respond within `timeout_s`, the thread is abandoned."""
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _write_all(self) -> None:
        while (moment := self._waiting.get()) is not None:
            try:
                self._write(moment)
            except OSError as error:
                self._drop(f"{self._folder / NEW}: {error.strerror or error}")
                self._forget()
            finally:
                self._waiting.task_done()
        self._forget()
        self._waiting.task_done()

    def _write(self, moment: Moment) -> None:
        """Writes one moment. Raises OSError."""
        plain = self._encoder.encode(moment)
        content = self._compressor.compress(plain)
        if len(plain) > RECORD_BYTES_MAX or HEAD.size + len(content) > self._segment_bytes:
            self._drop(f"a moment of {len(plain)} bytes is too large")
            return
        record = HEAD.pack(len(content), zlib.crc32(content)) + content
        if self._fd is None:
            self._open()
        if self._size_bytes + len(record) > self._segment_bytes:
            self._swap()
        assert self._fd is not None
        if _written(self._fd, record) == len(record):
            self._size_bytes += len(record)
        else:
            self._drop(f"{self._folder / NEW}: no room on the disk")
            os.ftruncate(self._fd, self._size_bytes)

    def _open(self) -> None:
        """Opens the file for appending after the last complete record. Raises OSError.

        A previous agent may have left an incomplete record.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._folder / NEW, flags, 0o644)
        try:
            whole_bytes = sum(HEAD.size + len(content) for content in _records(fd, SEGMENT_BYTES_READ_MAX))
            os.ftruncate(fd, whole_bytes)
        except BaseException:
            os.close(fd)
            raise
        self._fd, self._size_bytes = fd, whole_bytes

    def _swap(self) -> None:
        """Replaces the old file by the new one. Raises OSError."""
        self._forget()
        os.replace(self._folder / NEW, self._folder / OLD)
        self._open()

    def _forget(self) -> None:
        """Closes the file, so that the next write reopens it and cuts off an incomplete record."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def _drop(self, why: str) -> None:
        self.dropped += 1
        self.why_not = why


def _written(fd: int, record: bytes) -> int:
    """Writes a record; returns the bytes written, fewer if the disk is full.

    Raises OSError for other errors.
    """
    try:
        return os.write(fd, record)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return 0
        raise


def read_samples(folder: Path, since_s: float = float("-inf")) -> Iterator[Moment]:
    """Yields the stored samples of a worker from `since_s` (the job's clock) on, the oldest first.

    If a file is missing or damaged, yields what is intact before the damage. Never raises because of a file's
    content.
    """
    decoder = msgspec.msgpack.Decoder(Moment)
    plain = zstandard.ZstdDecompressor()
    for content in _contents(folder):
        try:
            if not 0 <= zstandard.frame_content_size(content) <= RECORD_BYTES_MAX:
                continue
            moment = decoder.decode(plain.decompress(content))
        except (zstandard.ZstdError, msgspec.MsgspecError):
            continue
        if moment.at_s >= since_s:
            yield moment


def _contents(folder: Path) -> Iterator[bytes]:
    """Yields the contents of both files, the older file first.

    The newer file is opened first, so that a swap in between duplicates it instead of losing it. After two
    swaps, both are reopened.
    """
    opened: dict[tuple[int, int], int] = {}
    try:
        for _ in range(OPENED_TIMES_MAX):
            _close(opened)
            for name in (NEW, OLD):
                _add_opened(opened, folder / name)
            there = {_identity(folder / name) for name in (NEW, OLD)}
            if not opened or next(iter(opened)) in there:
                break
        for fd in reversed(opened.values()):
            yield from _records(fd, SEGMENT_BYTES_READ_MAX)
    except OSError:
        return
    finally:
        _close(opened)


def _add_opened(opened: dict[tuple[int, int], int], path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    stat = os.fstat(fd)
    if (stat.st_dev, stat.st_ino) in opened:
        os.close(fd)
    else:
        opened[stat.st_dev, stat.st_ino] = fd


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.lstat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _close(opened: dict[tuple[int, int], int]) -> None:
    for fd in opened.values():
        os.close(fd)
    opened.clear()


def _records(fd: int, bytes_max: int) -> Iterator[bytes]:
    """Yields the contents of the complete records at the beginning of a file. Raises OSError."""
    at = 0
    while at < bytes_max:
        head = os.pread(fd, HEAD.size, at)
        if len(head) < HEAD.size:
            return
        length, crc = HEAD.unpack(head)
        if not 0 < length <= RECORD_BYTES_MAX:
            return
        content = os.pread(fd, length, at + HEAD.size)
        if len(content) < length or zlib.crc32(content) != crc:
            return
        at += HEAD.size + length
        yield content

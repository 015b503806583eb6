"""Measures a file system: sequential speed without the page cache, random reads, and flushed writes.

The test file has no name, or its name is removed at once, so it disappears with the process.
"""

import errno
import mmap
import os
import random
import tempfile
import threading
import time
from contextlib import suppress

from msgspec import Struct

CHUNK_BYTES = 4 << 20
SMALL_BYTES = 4096
PARTS = 8  # of a file, each timed by itself: their spread is that of the disk
THREADS = 8
SEED = 20_080_417
FREE_SHARE_MAX = 0.05
LEFT_BYTES_MIN = 1 << 30
FILE_BYTES_MIN = 4 * CHUNK_BYTES


class NoRoom(OSError):
    """Raised when a test file cannot be created, for lack of space or of permission. The message says which."""


class DiskSpeed(Struct, frozen=True, kw_only=True):
    """Measured speed of a file system.

    `write`, `read`: bytes a second for each part of the file, including the flush. `reads`, `syncs`: random
    reads and flushed writes of 4 KiB, per second. None: not measured, because it would have measured the page
    cache. `is_direct`: True if the page cache was bypassed (O_DIRECT). `wrong_chunks`: chunks that read back
    differently.
    """

    write: tuple[float, ...]
    read: tuple[float, ...] | None
    reads: tuple[float, ...] | None
    syncs: tuple[float, ...] | None
    file_bytes: int
    is_direct: bool
    wrong_chunks: int = 0


def room(folder: str, wanted_bytes: int) -> int:
    """Returns how many bytes a test file in this folder may have, at most `wanted_bytes`. Raises NoRoom."""
    try:
        has = os.statvfs(folder)
    except OSError as error:
        raise NoRoom(f"{folder}: {error.strerror or error}") from error
    free = has.f_bavail * has.f_frsize
    most = min(wanted_bytes, int(free * FREE_SHARE_MAX), free - LEFT_BYTES_MIN)
    if most < FILE_BYTES_MIN:
        raise NoRoom(
            f"{folder}: {free >> 20} MiB are free, too little for a test file of {FILE_BYTES_MIN >> 20} MiB"
        )
    return most // (CHUNK_BYTES * PARTS) * CHUNK_BYTES * PARTS or FILE_BYTES_MIN


def measured(folder: str, file_bytes: int, seconds: float) -> DiskSpeed:
    """Measures the speed of the file system of a folder. Each of the four measurements stops after `seconds`.

    raises: NoRoom if the test file cannot be created; OSError if the disk fails
    """
    if direct := getattr(os, "O_DIRECT", 0):
        try:
            return _measured(folder, direct, file_bytes, seconds)
        except OSError as error:
            if error.errno != errno.EINVAL:  # else a file system without it
                raise
    return _measured(folder, 0, file_bytes, seconds)


def _measured(folder: str, direct: int, file_bytes: int, seconds: float) -> DiskSpeed:
    is_direct = bool(direct)
    descriptor = _nameless(folder, direct)
    try:
        with mmap.mmap(-1, CHUNK_BYTES) as chunk:  # pages of our own: aligned, as O_DIRECT wants it
            chunk.write(random.Random(SEED).randbytes(CHUNK_BYTES))
            written, write = _write(descriptor, chunk, file_bytes, seconds)
            if not is_direct:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            read, wrong_chunks = _read(descriptor, chunk, written, seconds)
        return DiskSpeed(
            write=write,
            read=read if is_direct else None,
            reads=_small_reads(descriptor, written, seconds) if is_direct else None,
            syncs=_syncs(descriptor, written, seconds),
            file_bytes=written,
            is_direct=is_direct,
            wrong_chunks=wrong_chunks,
        )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(f"{folder}: {error.strerror}") from error
        raise
    finally:
        os.close(descriptor)


def _nameless(folder: str, direct: int) -> int:
    """Creates a file without a name and returns its descriptor.

    Raises NoRoom, and OSError with EINVAL if the file system does not support O_DIRECT.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | direct
    with suppress(OSError):
        return os.open(folder, flags | os.O_TMPFILE, 0o600)
    path = tempfile.mktemp(prefix=".holdfast-bench-", dir=folder)
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        if error.errno == errno.EINVAL and direct:
            raise
        raise NoRoom(f"{folder}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            os.unlink(path)


def _write(
    descriptor: int, chunk: mmap.mmap, file_bytes: int, seconds: float
) -> tuple[int, tuple[float, ...]]:
    """Writes the test file. Returns the number of bytes written, and bytes a second of each part."""
    until_s = time.monotonic() + seconds
    part_bytes = max(CHUNK_BYTES, file_bytes // PARTS)
    written = 0
    rates: list[float] = []

    def is_on(end: int) -> bool:
        return written < end and (written < FILE_BYTES_MIN or time.monotonic() < until_s)

    while is_on(file_bytes):
        began_s, begin = time.perf_counter(), written
        end = min(begin + part_bytes, file_bytes)
        while is_on(end):
            _mark(chunk, written)
            written += _whole(os.pwritev(descriptor, [chunk], written))
        os.fsync(descriptor)
        rates.append((written - begin) / max(time.perf_counter() - began_s, 1e-9))
    return written, tuple(rates)


def _read(
    descriptor: int, chunk: mmap.mmap, file_bytes: int, seconds: float
) -> tuple[tuple[float, ...], int]:
    """Reads the test file.

    Returns bytes a second of each part, and how many chunks differ from what was written.
    """
    until_s = time.monotonic() + seconds
    part_bytes = max(CHUNK_BYTES, file_bytes // PARTS)
    at = wrong = 0
    rates: list[float] = []
    with mmap.mmap(-1, CHUNK_BYTES) as back:
        while at < file_bytes and (not rates or time.monotonic() < until_s):
            spent_s, begin = 0.0, at
            end = min(begin + part_bytes, file_bytes)
            while at < end and (at == begin or time.monotonic() < until_s):
                began_s = time.perf_counter()
                got = _whole(os.preadv(descriptor, [back], at))
                spent_s += time.perf_counter() - began_s
                _mark(chunk, at)
                wrong += memoryview(back) != memoryview(chunk)
                at += got
            rates.append((at - begin) / max(spent_s, 1e-9))
    return tuple(rates), wrong


def _mark(chunk: mmap.mmap, place: int) -> None:
    """Writes the chunk's number into its first bytes, so that a chunk stored at a wrong place is detected."""
    chunk[:8] = place.to_bytes(8, "little")


def _whole(count: int) -> int:
    if count != CHUNK_BYTES:
        raise OSError(errno.EIO, f"{count} of {CHUNK_BYTES} bytes were written by one call")
    return count


def _small_reads(descriptor: int, file_bytes: int, seconds: float) -> tuple[float, ...]:
    """Returns random reads a second by several threads at once, for each of four intervals."""
    stretch_s = seconds / 4
    began_s = time.monotonic()
    counts = [[0] * 4 for _ in range(THREADS)]

    def read(number: int) -> None:
        dice = random.Random(SEED + number)
        with mmap.mmap(-1, SMALL_BYTES) as small:
            while (stretch := int((time.monotonic() - began_s) / stretch_s)) < 4:
                try:
                    os.preadv(descriptor, [small], dice.randrange(file_bytes // SMALL_BYTES) * SMALL_BYTES)
                except OSError:
                    return
                counts[number][stretch] += 1

    threads = [threading.Thread(target=read, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(sum(count[stretch] for count in counts) / stretch_s for stretch in range(4))


def _syncs(descriptor: int, file_bytes: int, seconds: float) -> tuple[float, ...]:
    """Returns flushed writes of 4 KiB a second, one after another, for each quarter of them."""
    times_s: list[float] = []
    until_s = time.monotonic() + seconds
    dice = random.Random(SEED)
    with mmap.mmap(-1, SMALL_BYTES) as small:
        while len(times_s) < 8 or (time.monotonic() < until_s and len(times_s) < 10_000):
            began_s = time.perf_counter()
            os.pwritev(descriptor, [small], dice.randrange(file_bytes // SMALL_BYTES) * SMALL_BYTES)
            os.fdatasync(descriptor)
            times_s.append(time.perf_counter() - began_s)
    quarter = len(times_s) // 4
    return tuple(quarter / max(sum(times_s[n * quarter : (n + 1) * quarter]), 1e-9) for n in range(4))

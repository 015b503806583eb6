"""Keeps space free on the disk that the training writes its output to; on a full disk its next line would end
it.

If little space is left, the oldest output is removed by punching holes in the files: sizes and offsets stay,
removed data reads as zeros. Only the given output files change, the newest part of each is kept, and each
removal is reported. It never waits for space and never raises.
"""

import ctypes
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

FREE_BYTES_MIN = 64 << 20  # less than this is too little; of a small disk a quarter
KEPT_BYTES = 8 << 20  # of each file, the newest; of a small disk no more than an eighth of it
GIVEN_UP_BYTES_MAX = 1 << 30  # in one look: punching takes its time too
LOOK_S, LOOK_NEAR_S, NEAR = 1.0, 0.2, 4  # near: so many times what is too little
FULL_BYTES = 64 << 10  # with less than this, buffers of a few ranks no longer fit
BLOCK_BYTES = 4096
STAT_BLOCK_BYTES = 512  # the unit of st_blocks
PUNCH_HOLE, KEEP_SIZE = 0x02, 0x01  # linux/falloc.h
MIB = 1 << 20

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class SpaceGuard:
    """Watches the free space of one folder, and truncates output files if it runs out. `files`: those files, oldest first."""

    def __init__(self, folder: Path, files: Callable[[], Iterable[Path]]) -> None:
        self._folder = folder
        self._files = files
        self.given_up_bytes = 0
        self.next_look_s = LOOK_S  # from the last one: sooner where the disk may be full soon
        self._said_bytes = 0  # of what was given up
        self._is_low = False
        self._was_full = False
        self._refused = ""  # why the last file could not be shortened

    def is_full(self) -> bool:
        """Returns whether the disk is too full even for a traceback, now or at the last call of `look`."""
        with suppress(OSError):
            _size_bytes, free_bytes = self._room()
            self._was_full = self._was_full or free_bytes < FULL_BYTES
        return self._was_full

    def _room(self) -> tuple[int, int]:
        """Returns the size of the disk and its free space, in bytes. Raises OSError."""
        disk = os.statvfs(self._folder)
        free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
        return disk.f_frsize * disk.f_blocks, disk.f_frsize * free

    def look(self) -> str:
        """Checks the free space, and removes old output if it is low.

        Returns a sentence to log, or an empty string.

        To be called once the time `next_look_s` has come.
        """
        try:
            size_bytes, free_bytes = self._room()
        except OSError:
            return ""  # the folder is gone: there is nothing to guard
        wanted_bytes = min(FREE_BYTES_MIN, size_bytes // 4)
        self.next_look_s = LOOK_S if free_bytes > NEAR * wanted_bytes else LOOK_NEAR_S
        if not size_bytes or free_bytes >= wanted_bytes:
            self._is_low = self._was_full = False
            return ""
        kept_bytes = min(KEPT_BYTES, size_bytes // 8)
        given_up = self._give_up(min(2 * wanted_bytes - free_bytes, GIVEN_UP_BYTES_MAX), kept_bytes)
        self.given_up_bytes += given_up
        self._was_full = free_bytes + given_up < FULL_BYTES
        return self._news(free_bytes, given_up)

    def _give_up(self, wanted_bytes: int, kept_bytes: int) -> int:
        given_up = 0
        for path in self._files():
            if given_up >= wanted_bytes:
                break
            given_up += self._shorten(path, wanted_bytes - given_up, kept_bytes)
        return given_up

    def _shorten(self, path: Path, wanted_bytes: int, kept_bytes: int) -> int:
        """Frees up to `wanted_bytes` of the oldest part of a file, and returns the number of bytes freed."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return 0
        try:
            before = os.fstat(fd)
            begin = os.lseek(fd, 0, os.SEEK_DATA) // BLOCK_BYTES * BLOCK_BYTES
            end = min(begin + wanted_bytes, before.st_size - kept_bytes) // BLOCK_BYTES * BLOCK_BYTES
            if end <= begin:
                return 0
            _punch(fd, begin, end)
            return max(0, (before.st_blocks - os.fstat(fd).st_blocks) * STAT_BLOCK_BYTES)
        except OSError as error:
            self._refused = f"{path}: {error.strerror}"
            return 0
        finally:
            os.close(fd)

    def _news(self, free_bytes: int, given_up: int) -> str:
        """Returns the sentence to log: at the first low space, and each time the removed bytes have
        doubled.
        """
        first = not self._is_low and not self._said_bytes
        self._is_low = True
        if not first and self.given_up_bytes < 2 * max(self._said_bytes, MIB):
            return ""
        self._said_bytes = self.given_up_bytes
        text = f"the disk under {self._folder} is nearly full ({free_bytes // MIB} MiB left)"
        if self.given_up_bytes:
            return (
                f"{text}: {self.given_up_bytes / MIB:.0f} MiB of this job's oldest output were removed so "
                "that the training can continue to print; free some space there"
            )
        why = f" ({self._refused})" if self._refused else ""
        return (
            f"{text} and this job's output has nothing to remove{why}: free some space there, or the "
            "training will end"
        )


def _punch(fd: int, begin: int, end: int) -> None:
    if _LIBC.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, begin, end - begin) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
